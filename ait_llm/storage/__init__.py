"""Dumps that lie elsewhere: fsspec URLs of folders and files, read as if they were local.

A remote folder is listed once. Its small tables are fetched at once, tensor files when they are
opened; until then a placeholder of the same size stands for each. ``ait_llm.formats`` opens every
file of a dump, and asks here first. Nothing here knows what a dump holds.
"""

from ait_llm.storage.addresses import is_url, redacted
from ait_llm.storage.ahead import expect_values, prefetch
from ait_llm.storage.output import OutputFolder, output_folder
from ait_llm.storage.places import address, forget, is_staging, local_path, staged
from ait_llm.storage.remote import StorageError

__all__ = [
    "OutputFolder",
    "StorageError",
    "address",
    "expect_values",
    "forget",
    "is_staging",
    "is_url",
    "local_path",
    "output_folder",
    "prefetch",
    "redacted",
    "staged",
]
