"""A site's models on disk, under the SHA-256 of their bytes."""

from collections.abc import Collection
from pathlib import Path

from fedcompass.deployment.wire.arriving import ArrivingFile, digest_of

__all__ = ["ModelFiles"]


class ModelFiles:
    """A folder of models, made when it is not there.

    None is forced to the disk: a damaged one is noticed by its digest.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checked: set[str] = set()  # read whole since this process started
        folder.mkdir(parents=True, exist_ok=True)

    def whole(self, digest: str) -> Path | None:
        """A model, if it is here and undamaged."""
        path = self._folder / digest
        if not path.is_file():
            return None
        if digest not in self._checked:
            if digest_of(path) != digest:
                path.unlink()
                return None
            self._checked.add(digest)
        return path

    def arriving(self, digest: str, size: int) -> ArrivingFile:
        """A model that is about to be fetched; what is here of it already is taken up."""
        return ArrivingFile(self._folder / digest, size, digest)

    def arrived(self, file: ArrivingFile) -> Path:
        """Put a model that was fetched in its place."""
        path = file.finish()
        self._checked.add(file.digest)
        return path

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove all other models, and parts of them."""
        for path in self._folder.iterdir():
            if path.name.split(".")[0] not in digests:
                path.unlink(missing_ok=True)
        self._checked &= set(digests)
