"""A site's account on its disk: what is spent is written down before it is spent."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcompass.errors import BudgetSpent, RunFolderError
from fedcompass.privacy.account import PrivacyAccount, PrivacyPlan
from fedcompass.runs.files import locked, write_whole
from fedcompass.vocabulary import Steps

__all__ = ["AccountFile"]

_FORMAT = 1


class AccountFile:
    """Charges steps to an account that survives crashes, and that several processes may share.

    A kill at any moment leaves at least what was spent: `charge` returns when the steps are on the
    disk, and only then may they be taken. What was charged and not taken is given back by `settle`,
    when nothing more can be taken.

    Args:
        path: the file; none is there before the first charge.
        plan: the site's budget, and how it trains.
    """

    def __init__(self, path: Path, plan: PrivacyPlan) -> None:
        self.path, self.plan = path, plan
        self.read()  # a damaged one is noticed when the site starts

    def read(self) -> PrivacyAccount:
        """What is on the disk.

        Raises:
            RunFolderError: it cannot be read, or is damaged.
        """
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            if record["format"] != _FORMAT:
                raise ValueError(f"its format is {record['format']!r}")
            return PrivacyAccount.from_json(record["spent"])
        except FileNotFoundError:
            return PrivacyAccount()
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{self.path}, the site's privacy account, cannot be read ({error}); restore it "
                "from a backup: without it nobody knows what is spent"
            ) from None

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
            account = self.read()
            allowed = account.affords(self.plan, steps)
            if allowed == 0:
                raise self._nothing_left(account)
            account.charge(self.plan.spent(allowed))
            self._write(account)
        return allowed

    def settle(self, charged: Steps, done: Steps) -> None:
        """Give back charged steps that were not taken and never will be."""
        if done == charged:
            return
        with self._alone():
            account = self.read()
            try:
                account.charge(self.plan.spent(done - charged))
            except ValueError:  # another process has charged steps of another kind since then
                return
            self._write(account)

    def _nothing_left(self, account: PrivacyAccount) -> BudgetSpent:
        return BudgetSpent(account.epsilon(self.plan.delta), self.plan.epsilon)

    def _write(self, account: PrivacyAccount) -> None:
        record = {"format": _FORMAT, "spent": account.to_json()}
        write_whole(self.path, json.dumps(record) + "\n")

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
