-- Which home this database belongs to; the home has the same in a file. One row, once the two belong together.

CREATE TABLE home (
    id         TEXT NOT NULL,
    -- Grows each time the database is opened, so that an old copy can be told from the newest one.
    generation INTEGER NOT NULL
) STRICT;
