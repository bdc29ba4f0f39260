"""News from files that grow."""

from pathlib import Path
from typing import Any

from fedcompass.report import RunFiles
from fedcompass.report.following import Following, Message


def new_run(folder: Path) -> RunFiles:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.toml").write_text("seed = 3\n")
    return RunFiles(folder)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def lines(messages: list[Message], file: str = "journal") -> str:
    found = [m.content for m in messages if m.kind == "lines" and m.content["file"] == file]
    return "".join(content["text"] for content in found)


def kinds(messages: list[Message]) -> list[str]:
    return [message.kind for message in messages]


def test_a_run_that_has_not_begun_tells_its_settings_only(tmp_path: Path) -> None:
    reset, facts = Following([new_run(tmp_path)]).news()
    assert (reset.kind, facts.kind) == ("reset", "facts")
    assert facts.content["run"] == 0
    assert facts.content["facts"]["settings"] == {"seed": 3}


def test_only_what_is_new_is_told_and_only_whole_lines(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    following = Following([run])
    append(run.journal, "one\ntwo\nthr")
    assert lines(list(following.news())) == "one\ntwo\n"
    assert list(following.news()) == []
    append(run.journal, "ee\n")
    append(run.metrics, "m\n")
    news = list(following.news())
    assert lines(news) == "three\n"
    assert lines(news, "metrics") == "m\n"


def test_a_page_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    append(run.journal, "one\n")
    heard = list(Following([run]).news())
    append(run.journal, "two\n")
    news = list(Following([run], heard[-1].place).news())
    assert kinds(news) == ["facts", "lines"]
    assert lines(news) == "two\n"


def test_a_page_that_comes_back_before_the_metrics_began_hears_all_of_them(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    append(run.journal, "one\n")
    heard = list(Following([run]).news())
    append(run.metrics, "m\n")
    news = list(Following([run], heard[-1].place).news())
    assert kinds(news) == ["facts", "lines"]
    assert lines(news, "metrics") == "m\n"


def test_a_place_that_makes_no_sense_starts_over(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    append(run.journal, "one\n")
    places: list[Any] = [None, "", "x", "1.2-3.4", "1.-2.0-0.0.0", "1.1.1-0.0.0", "../..", "9" * 9]
    for place in places:
        news = list(Following([run], place).news())
        assert kinds(news) == ["reset", "facts", "lines"], place
        assert lines(news) == "one\n"


def test_a_journal_cut_back_by_a_resumed_run_is_told_anew(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    append(run.journal, "one\ntwo\n")
    following = Following([run])
    list(following.news())
    run.journal.write_text("one\n")
    news = list(following.news())
    assert kinds(news) == ["reset", "lines"]
    assert lines(news) == "one\n"


def test_a_journal_cut_back_and_grown_again_between_two_looks_is_told_anew(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    append(run.journal, "one\ntwo\n")
    following = Following([run])
    list(following.news())
    with run.journal.open("r+") as file:
        file.truncate(4)
    append(run.journal, "2nd\nthree\n")
    assert lines(list(following.news())) == "one\n2nd\nthree\n"


def test_a_journal_that_was_replaced_is_told_anew(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    append(run.journal, "one\n")
    following = Following([run])
    list(following.news())
    beside = tmp_path / "beside"
    beside.write_text("other\nlines\n")
    beside.replace(run.journal)
    assert lines(list(following.news())) == "other\nlines\n"


def test_a_long_journal_comes_in_several_messages_with_lines_kept_whole(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    text = "".join(f"{number} {'x' * 90}\n" for number in range(9_000)) + "y" * 300_000 + "\n"
    append(run.journal, text)
    news = [m for m in Following([run]).news() if m.kind == "lines"]
    assert len(news) > 4
    assert all(m.content["text"].endswith("\n") for m in news)
    assert lines(news) == text


def test_the_last_news_is_that_all_runs_are_over(tmp_path: Path) -> None:
    first, second = new_run(tmp_path / "a"), new_run(tmp_path / "b")
    following = Following([first, second])
    append(second.journal, "one\n")
    (first.path / "summary.json").write_text("{}")
    assert kinds(list(following.news())) == ["reset", "facts", "facts", "lines"]
    (second.path / "summary.json").write_text("{}")
    append(second.journal, "two\n")
    assert kinds(list(following.news())) == ["facts", "lines", "done"]


def test_facts_that_are_half_written_come_later(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    (tmp_path / "experiment.toml").write_text("seed =")
    following = Following([run])
    assert kinds(list(following.news())) == ["reset"]
    (tmp_path / "experiment.toml").write_text("seed = 4\n")
    assert kinds(list(following.news())) == ["facts"]


def test_a_run_is_not_over_before_its_summary_could_be_read(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    following = Following([run])
    list(following.news())
    (tmp_path / "summary.json").write_text("")
    assert kinds(list(following.news())) == []
    (tmp_path / "summary.json").write_text("{}")
    assert kinds(list(following.news())) == ["facts", "done"]
