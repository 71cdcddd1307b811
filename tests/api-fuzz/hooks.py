"""Bodies that are not JSON: any bytes will do, since a refusal is an answer too."""

import schemathesis


@schemathesis.serializer("application/x-tar", "application/zstd")
def raw(context, value):
    return value if isinstance(value, bytes) else repr(value).encode()
