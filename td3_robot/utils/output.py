"""Standard output and standard error whose failures cost no work."""

import io
import os
import sys

UNWRITTEN = 3  # exit code: all is done and saved, but a log or the output could not be written


class Output(io.FileIO):
    """A standard stream that drops what it cannot write.

    Attributes:
        error: the first failure; None before, and where only the reader, `head` for one, has left.
    """

    error: OSError | None = None

    def write(self, data) -> int | None:
        """Write bytes, or drop them."""
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.error = self.error or error
        return len(data)


def open_output() -> Output:
    """Replace `sys.stdout` and `sys.stderr` of this process, also where they were closed.

    A closed stream would else be None, to which nothing can be printed, and the next file to be
    opened would get its number.

    Returns:
        Standard output, for `finish_output`.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # it is closed: `>&-`
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    output = Output(1, "wb", closefd=False)
    sys.stdout = _wrap(output, sys.stdout, "strict")
    sys.stderr = _wrap(Output(2, "wb", closefd=False), sys.stderr, "backslashreplace")
    return output


def _wrap(raw: Output, before: object, errors: str) -> io.TextIOWrapper:
    """Return a text stream with the encoding and the buffering that the former one had."""
    unbuffered = getattr(before, "write_through", False)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # type: ignore[arg-type]
        encoding=getattr(before, "encoding", "utf-8"),
        errors=getattr(before, "errors", errors),
        line_buffering=getattr(before, "line_buffering", False),
        write_through=unbuffered,
    )


def finish_output(output: Output, code: int) -> int:
    """Flush both streams; return the exit code, `UNWRITTEN` instead of 0 if output was lost."""
    sys.stdout.flush()
    if output.error is not None:
        code = code or UNWRITTEN
        print(f"warning: the output cannot be written ({output.error.strerror})", file=sys.stderr)
    sys.stderr.flush()
    return code
