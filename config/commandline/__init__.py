"""The base of all commands. Results go to standard output; errors and remarks go to standard error."""

import io
import json
import logging
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, NoReturn

import structlog
from django import db
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError

from config import PROGRAM, __version__
from config.checks import OURS, of_the_database
from config.database import advice
from config.environment import secret_key
from config.errors import FAILED, USAGE, DomainError, InvalidField

log = structlog.get_logger("palimpsest.command")


class Task(BaseCommand):
    """A command. Subclasses implement `run`, which takes the options and returns the exit code, or None for 0.

    `needs_sound_database`: whether the checks of the database (keys, triggers) must pass first. An entry that is
    written with a wrong key can never be verified.
    """

    needs_sound_database = True
    requires_system_checks: Any = (OURS,)  # Django's checks load all pages (0.5 s, 30 MB); CI runs them
    log_level = logging.WARNING  # the command itself reports what happened

    def get_version(self) -> str:
        return __version__

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.description = _named(self.help)
        parser.epilog = "Exit codes: 0 done, 1 failed, 2 wrong configuration or usage, 3 model failed."
        return parser

    def execute(self, *args: Any, **options: Any) -> None:
        if sys.stdout is None:  # closed by the caller
            self.fail("standard output is closed", FAILED)
        if isinstance(sys.stdout, io.TextIOWrapper):  # results are UTF-8, whatever the terminal's encoding is
            sys.stdout.reconfigure(encoding="utf-8")
        with self._errors_reported(traceback=options["traceback"]), _signals_interrupt():
            super().execute(*args, **options)
            self.stdout.flush()

    def handle(self, *args: Any, **options: Any) -> None:
        logging.getLogger("palimpsest").setLevel(self.log_level)
        if self.needs_sound_database:
            self.require_sound_database()
        if code := self.run(**options):
            sys.exit(code)

    def set_up(self) -> None:
        """Create the keys and the tables."""
        call_command("create_keys", stderr=self.stderr)
        settings.SECRET_KEY = secret_key("SECRET_KEY", settings.KEYS_DIR)  # this key is newer than the settings
        call_command("migrate", verbosity=0)

    def require_sound_database(self) -> None:
        wrong = of_the_database()
        for check in wrong[1:]:
            self.say(f"error: {check.msg}")
        if wrong:
            self.fail(f"{wrong[0].msg} {wrong[0].hint or ''}".rstrip(), USAGE)

    @contextmanager
    def _errors_reported(self, *, traceback: bool) -> Iterator[None]:
        """Turn each error, including errors of the system checks, into a line on standard error and an exit code."""
        try:
            yield
        except DomainError as error:
            self.fail(str(error), error.exit_code)
        except ImproperlyConfigured as error:  # an invalid option of DATABASE_URL
            self.fail(str(error), USAGE)
        except CommandError as error:
            error.returncode = USAGE if isinstance(error, SystemCheckError) else error.returncode
            raise
        except BrokenPipeError:  # the reader of the output is gone
            drop_output()
            sys.exit(FAILED)
        except OSError as error:
            drop_output()
            self.fail(f"Input or output failed ({error.strerror}).", FAILED)
        except KeyboardInterrupt:
            self.fail("interrupted", FAILED)
        except Exception as error:
            if traceback:
                raise
            self._report_unexpected(error)

    def _report_unexpected(self, error: Exception) -> NoReturn:
        """Report an error by its type and place, without its text, because the text may quote content."""
        kind = type(error).__name__
        if isinstance(error, db.OperationalError | db.ProgrammingError) or type(error) is db.DatabaseError:
            self.fail(f"The database cannot be used ({kind}): {advice(error)}", USAGE)
        log.error("command failed", exc_info=error)
        what = "The database refused a statement" if isinstance(error, db.Error) else "An error in the program"
        self.fail(f"{what} ({kind}). The line above shows the place in the code.", FAILED)

    @abstractmethod
    def run(self, *_: Any, **options: Any) -> int | None: ...

    def fail(self, message: str, code: int) -> NoReturn:
        self.stderr.write(printable(_named(f"error: {message}")))
        sys.exit(code)

    def say(self, message: str) -> None:
        """Write a remark to standard error, without color. On a full disk, the remark is lost."""
        with suppress(OSError):
            self.stderr.write(printable(_named(message)), lambda plain: plain)

    def tell(self, line: str) -> None:
        """Write one line of the result to standard output, for people."""
        self.stdout.write(printable(line))

    def result(self, value: Any) -> None:
        """Write the result as one line of JSON to standard output."""
        self.stdout.write(as_json(value))

    def agrees(self, show: Callable[[], None], *, yes: bool) -> bool:
        """Show a preview and ask the person at the terminal whether to continue. With `yes`, or without a terminal,
        nobody is asked and the answer is yes."""
        if yes or not is_attended():
            return True
        show()
        self.stdout.flush()
        return self.answer("Do it? [y/N]") in ("y", "yes")

    def answer(self, question: str) -> str:
        """Ask a question and return what the person types, in lower case. Return "" at the end of the input."""
        self.stderr.write(f"{question} ", lambda plain: plain, ending="")  # not in the red of errors
        self.stderr.flush()
        try:
            return input().strip().lower()
        except EOFError:
            return ""


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON with invisible characters escaped, so that the output cannot control a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def read_file(field: str, path: str, most: int = -1) -> bytes:
    """The first `most` bytes of a file, or of standard input for "-". Raises InvalidField."""
    try:
        if path == "-":
            return sys.stdin.buffer.read(most)
        with Path(path).open("rb") as file:
            return file.read(most)
    except OSError as problem:
        raise InvalidField(field, f"cannot be read ({(problem.strerror or '').lower()})") from None


def is_attended() -> bool:
    """Whether the input is a terminal, so that the command can ask questions."""
    return bool(sys.stdin and sys.stdin.isatty())


def is_shown() -> bool:
    """Whether the result goes to a terminal, not to a program or a file."""
    return bool(sys.stdout and sys.stdout.isatty())


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP work like Ctrl-C, which rolls back an open transaction and closes open files."""
    if current_thread() is not main_thread():  # only the main thread can handle signals
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup sets SIG_IGN
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def printable(text: str, keep: str = "") -> str:
    """The text with invisible characters escaped, unless they are in `keep`. So the text cannot control a terminal or
    start a second line."""
    return "".join(each if each.isprintable() or each in keep else repr(each)[1:-1] for each in text)


def _named(text: str) -> str:
    """The text with the program's name as people type it."""
    return text.replace("manage.py ", f"{PROGRAM} ")


def drop_output() -> None:
    """Discard buffered output. Otherwise Python tries to write this output at exit, and then prints an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
