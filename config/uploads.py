"""Refuses uploaded files. No page takes any, and Django would write them to the temporary folder, without a limit."""

from typing import Any

from django.core.files.uploadhandler import FileUploadHandler, StopUpload


class NoFiles(FileUploadHandler):
    def new_file(self, *_: Any, **__: Any) -> None:
        raise StopUpload(connection_reset=True)
