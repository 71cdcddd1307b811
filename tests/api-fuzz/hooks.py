"""What schemathesis cannot know from our document: bodies that are not JSON, and what a real sandbox is like inside."""

import posixpath

import schemathesis

# Longest name that Linux's file systems take, in bytes. The document has only the limit of whole paths.
MAX_NAME_BYTES = 255

MAX_SEARCH_CHARS, MAX_SEARCH_WORDS = 256, 16

# Parameters and members that are paths, absolute or from the working directory.
PATHS = {"path", "root", "from", "to", "cwd"}


@schemathesis.serializer("application/x-tar", "application/zstd")
def raw(context, value):
    """Any bytes will do, since a refusal is an answer too."""
    return value if isinstance(value, bytes) else repr(value).encode()


@schemathesis.hook
def filter_case(context, case):
    """A path with a name that is too long is refused by the file system, not by the API. What is searched for has limits
    that no pattern can state: characters and words, and one at least in output."""
    if any(has_long_name(path) for path in [*paths(case.query), *paths(case.body)]):
        return False
    searched = case.query.get("q") if isinstance(case.query, dict) else None
    return not isinstance(searched, str) or (0 < len(searched) <= MAX_SEARCH_CHARS and len(searched.split()) <= MAX_SEARCH_WORDS)


def paths(container):
    named = container.items() if isinstance(container, dict) else ()
    return [value for name, value in named if isinstance(value, str) and (name in PATHS or value.startswith("/"))]


def has_long_name(path):
    return any(len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES for name in path.split("/"))


@schemathesis.hook
def before_call(context, case, kwargs):
    """Archives of small directories only: `/usr` is the host's, gigabytes that schemathesis would hold in memory."""
    path = isinstance(case.query, dict) and case.query.get("path")
    if case.operation.label == "GET /v1/sandboxes/{sandbox}/files/archive" and isinstance(path, str):
        normal = posixpath.normpath(path)
        if normal.strip("/") == "" or normal.strip("/").split("/")[0] in ("usr", "bin", "sbin", "lib", "lib64"):
            case.query["path"] = "/etc"
