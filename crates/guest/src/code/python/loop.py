# Part "loop": cells that await. One event loop lives as long as the context; it runs while a cell awaits.
import asyncio

loop = None
# Where a cell was when it was cancelled; the task itself forgets it in some versions.
where = []


def run_in_loop(codes):
    task = the_loop().create_task(run_codes(codes))
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        if not task.done():
            raise error.with_traceback(end_task(task)) from None
        if not task.cancelled():
            # Retrieved, so that it is not reported a second time as never retrieved.
            task.exception()
        raise


def end_task(task):
    """The interrupt hit the loop and not the cell's own code: that ends too, and may clean up. Returns where it was."""
    task.cancel()
    try:
        loop.run_until_complete(task)
    except BaseException:
        pass
    return where.pop() if where else None


def the_loop():
    global loop
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


async def run_codes(codes):
    value = None
    where.clear()
    try:
        for code in codes:
            value = eval(code, space)
            if code.co_flags & COROUTINE:
                value = await value
    except asyncio.CancelledError as error:
        where.append(error.__traceback__)
        raise
    return value
