"""What every command shares: errors on standard error with an exit code, the result alone on standard output."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, NoReturn

import structlog
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.db import DatabaseError, OperationalError, ProgrammingError
from django.db import Error as DatabaseTrouble

from config.checks import OURS, of_the_database
from config.commandline.option_names import as_typed
from config.errors import FAILED, USAGE, DomainError, InvalidField

log = structlog.get_logger("palimpsest.command")


class Task(BaseCommand):
    """A command of Palimpsest. Subclasses write `run`, which takes the options and returns the exit code or nothing.

    `needs_sound_database`: whether the checks that ask the database (keys that open its silos and continue its trail,
    triggers in place) must pass first. What is written under a wrong key could never be verified.
    """

    needs_sound_database = True
    requires_system_checks: Any = (OURS,)  # Django's own load every page, half a second and 30 MB; CI runs those
    log_level = logging.WARNING  # a person at a terminal is told what happened by the command itself

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.epilog = "Exit codes: 0 done, 1 failed, 2 configuration or usage, 3 the model."
        self._parser = parser
        return parser

    def execute(self, *args: Any, **options: Any) -> None:
        if sys.stdout is None:  # closed by whoever called
            self.fail("standard output is closed", FAILED)
        if isinstance(sys.stdout, io.TextIOWrapper):  # results are UTF-8, whatever the terminal is set to
            sys.stdout.reconfigure(encoding="utf-8")
        with self._told(traceback=options["traceback"]), _stopped_politely():
            super().execute(*args, **options)
            self.stdout.flush()

    def handle(self, *args: Any, **options: Any) -> None:
        logging.getLogger("palimpsest").setLevel(self.log_level)
        if self.needs_sound_database:
            self.require_sound_database()
        try:
            code = self.run(**options)
        except InvalidField as wrong:
            raise as_typed(wrong, self._parser, options) from None
        if code:
            sys.exit(code)

    def require_sound_database(self) -> None:
        wrong = of_the_database()
        for check in wrong[1:]:
            self.say(f"error: {check.msg}")
        if wrong:
            self.fail(f"{wrong[0].msg} {wrong[0].hint or ''}".rstrip(), USAGE)

    @contextmanager
    def _told(self, *, traceback: bool) -> Iterator[None]:
        """Whatever goes wrong becomes a line on standard error and an exit code; the system checks are in it.

        An exception nobody foresaw is told by its type and place alone: its text may echo content.
        """
        try:
            yield
        except DomainError as error:
            self.fail(str(error), error.exit_code)
        except ImproperlyConfigured as wrong:  # an option of DATABASE_URL that only connecting finds out
            self.fail(str(wrong), USAGE)
        except SystemCheckError as wrong:
            wrong.returncode = USAGE
            raise
        except CommandError:
            raise
        except BrokenPipeError:  # whoever read the output went away
            drop_output()
            sys.exit(FAILED)
        except OSError as failure:
            drop_output()
            self.fail(f"Input or output failed ({failure.strerror}).", FAILED)
        except KeyboardInterrupt:
            self.fail("interrupted", FAILED)
        except Exception as fault:
            if traceback:
                raise
            self._fault(fault)

    def _fault(self, fault: Exception) -> NoReturn:
        kind = type(fault).__name__
        if isinstance(fault, OperationalError | ProgrammingError) or type(fault) is DatabaseError:
            advice = "is it up, is DATABASE_URL right, and can VAR_DIR be written to?"
            if isinstance(fault, ProgrammingError) or "no such" in str(fault):  # table or column
                advice = "run 'manage.py migrate', and see that DATABASE_URL is right."
            self.fail(f"The database cannot be used ({kind}): {advice}", USAGE)
        log.error("command failed", exc_info=(type(fault), fault, fault.__traceback__))
        what = "The database refused" if isinstance(fault, DatabaseTrouble) else "An error in the program"
        self.fail(f"{what} ({kind}); the line above says where.", FAILED)

    @abstractmethod
    def run(self, *_: Any, **options: Any) -> int | None: ...

    def fail(self, message: str, code: int) -> NoReturn:
        self.stderr.write(_printable(f"error: {message}"))
        sys.exit(code)

    def say(self, message: str) -> None:
        """Progress and remarks: standard error, so that standard output carries the result alone."""
        self.stderr.write(_printable(message), lambda plain: plain)  # not in the red of errors

    def tell(self, line: str) -> None:
        """A line of the result, for people."""
        self.stdout.write(_printable(line))

    def agrees(self, show: Callable[[], None], *, yes: bool) -> bool:
        """Whether a person at the terminal wants what is shown. A script has said what it wants by calling."""
        if yes or not is_attended():
            return True
        show()
        self.stdout.flush()
        try:
            return input("Do it? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def result(self, value: Any) -> None:
        """The result as one line of JSON on standard output."""
        self.stdout.write(as_json(value))


def as_json(value: Any, indent: int | None = None) -> str:
    """With what cannot be seen in JSON's own words: no command to the terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def is_attended() -> bool:
    """Whether a person can be asked."""
    return bool(sys.stdin and sys.stdin.isatty())


def is_shown() -> bool:
    """Whether a person reads the result, at a terminal, and no program and no file takes it."""
    return bool(sys.stdout and sys.stdout.isatty())


@contextmanager
def _stopped_politely() -> Iterator[None]:
    """A request to end, or the end of the terminal, is as Ctrl-C: what is under way is closed, or was never done."""
    if current_thread() is not main_thread():  # only there can signals be waited for
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _printable(line: str) -> str:
    """One line, whatever SQL put into a name: no command to the terminal, no second line."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def drop_output() -> None:
    """What is still unwritten goes nowhere: Python would try again on its way out, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
