"""A site's account on its disk: what is spent is written down before it is spent."""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedcompass.errors import BudgetSpent, RunFolderError
from fedcompass.privacy.account import PrivacyAccount, PrivacyPlan
from fedcompass.runs.files import locked, write_whole
from fedcompass.vocabulary import Steps

__all__ = ["AccountFile"]

_FORMAT = 2
_DAMAGED = (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a file of any content raises."""


class AccountFile:
    """Charges steps to an account that survives crashes, and that several processes may share.

    A kill at any moment leaves at least what was spent: `charge` returns when the steps are on the
    disk, and only then may they be taken. What was charged and not taken is given back by `settle`,
    when nothing more can be taken.

    The file has a checksum, and a copy elsewhere, which is written after it. The copy shows that
    the file was lost, or replaced by an older one; it is never taken for the account itself, since
    others who share that may have charged it meanwhile. What to do then a person decides.

    Args:
        path: the file; none is there before the first charge.
        plan: the site's budget, and how it trains.
        copy: another file, of this site alone; None: there is none.
    """

    def __init__(self, path: Path, plan: PrivacyPlan, copy: Path | None = None) -> None:
        self.path, self.plan, self._copy = path, plan, copy
        self.read()  # a damaged one is noticed when the site starts

    def read(self) -> PrivacyAccount:
        """What is on the disk.

        Raises:
            RunFolderError: it cannot be read, is damaged or older than its copy, or only its copy
                is there.
        """
        return self._read()[1]

    def _read(self) -> tuple[int, PrivacyAccount]:
        """How often the account was written, and what it says."""
        try:
            writes, account = _read(self.path)
        except FileNotFoundError:
            if self._copy is None or not self._copy.exists():
                return 0, PrivacyAccount()
            raise self._unknown("it is not there, but its copy is") from None
        except _DAMAGED as error:
            raise self._unknown(str(error) or type(error).__name__) from None
        if self._copy is not None:
            with suppress(*_DAMAGED):  # none, or no whole one: it is written anew with the next
                if _read(self._copy)[0] > writes:
                    raise self._unknown("it is older than its copy")
        return writes, account

    def _unknown(self, why: str) -> RunFolderError:
        copy = "a copy" if self._copy is None else f"its copy, {self._copy}"
        return RunFolderError(
            f"{self.path}, the site's privacy account, cannot be read ({why}): nobody knows what "
            "is spent, and the site does not train until you decide. Restore the newest from a "
            f"backup; or put {copy}, in its place, unless another federation has used these data "
            "since; or remove both, for data that were never used"
        )

    @property
    def epsilon(self) -> float:
        """What is spent."""
        return self.read().epsilon(self.plan.delta)

    @property
    def exhausted(self) -> str:
        """That the budget allows no further step, in one line; empty: it allows one."""
        account = self.read()
        return "" if account.affords(self.plan, 1) else str(self._nothing_left(account))

    def charge(self, steps: Steps) -> Steps:
        """Charge as many of so many steps as the budget allows, on the disk; says how many.

        Raises:
            BudgetSpent: it allows none.
            RunFolderError: the file cannot be read or written; then nothing may be trained.
        """
        with self._alone():
            writes, account = self._read()
            allowed = account.affords(self.plan, steps)
            if allowed == 0:
                raise self._nothing_left(account)
            account.charge(self.plan.spent(allowed))
            self._write(writes + 1, account)
        return allowed

    def settle(self, charged: Steps, done: Steps) -> None:
        """Give back charged steps that were not taken and never will be."""
        if done == charged:
            return
        with self._alone():
            writes, account = self._read()
            try:
                account.charge(self.plan.spent(done - charged))
            except ValueError:  # another process has charged steps of another kind since then
                return
            self._write(writes + 1, account)

    def _nothing_left(self, account: PrivacyAccount) -> BudgetSpent:
        return BudgetSpent(account.epsilon(self.plan.delta), self.plan.epsilon)

    def _write(self, writes: int, account: PrivacyAccount) -> None:
        record = {"format": _FORMAT, "writes": writes, "spent": account.to_json()}
        text = json.dumps({**record, "crc": _checksum(record)}) + "\n"
        for place in (self.path, self._copy):  # a kill in between leaves the copy older, not newer
            if place is not None:
                write_whole(place, text)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes out meanwhile; one that dies lets go."""
        beside = self.path.with_name(f".{self.path.name}.lock")
        try:
            handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunFolderError(
                f"{beside} cannot be opened: {error.strerror}; mend the folder's permissions"
            ) from None
        try:
            with locked(handle):
                yield
        finally:
            os.close(handle)


def _read(path: Path) -> tuple[int, PrivacyAccount]:
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["format"] != _FORMAT:
        raise ValueError(f"its format is {record['format']!r}")
    if record.pop("crc") != _checksum(record):
        raise ValueError("its checksum differs")
    return record["writes"], PrivacyAccount.from_json(record["spent"])


def _checksum(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record).encode())
