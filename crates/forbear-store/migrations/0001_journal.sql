-- The log's own facts: its id, and what the oldest kept row is hashed onto.
CREATE TABLE log (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  log_id    BLOB    NOT NULL CHECK (length(log_id) = 16),
  base_seq  INTEGER NOT NULL,
  base_hash BLOB    NOT NULL CHECK (length(base_hash) = 32)
);
INSERT INTO log VALUES (1, randomblob(16), 0, zeroblob(32));

-- One row holds the events of one commit, as lines of JSON; it never crosses a UTC day.
CREATE TABLE journal (
  first_seq INTEGER PRIMARY KEY,
  last_seq  INTEGER NOT NULL,
  day       INTEGER NOT NULL, -- days since the Unix epoch
  form      INTEGER NOT NULL, -- 0: the lines themselves, 1: deflated
  raw_bytes INTEGER NOT NULL, -- of the lines
  hash      BLOB    NOT NULL, -- of the chain after last_seq
  events    BLOB    NOT NULL
);

-- Sealed contents of writes and durable actions.
CREATE TABLE contents (
  action BLOB PRIMARY KEY,
  sealed BLOB NOT NULL
);

-- State as of a sequence number; the newest two are kept.
CREATE TABLE snapshots (
  seq    INTEGER PRIMARY KEY,
  digest BLOB    NOT NULL,
  state  BLOB    NOT NULL
);

-- Words that repeat in the projection.
CREATE TABLE names (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
);

-- A projection of the journal: one row an action. Its start is in its id.
CREATE TABLE actions (
  id          BLOB PRIMARY KEY,
  first_seq   INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL,
  finished_at INTEGER, -- null while it stands
  scope       INTEGER, -- names
  route       INTEGER, -- names
  class       INTEGER, -- names
  task        TEXT,    -- null: the action is its own task
  run         TEXT,    -- null: named as the task
  outcome     INTEGER, -- names
  effect      INTEGER, -- names
  status      INTEGER,
  attempts    INTEGER NOT NULL,
  waited_ms   INTEGER NOT NULL
) WITHOUT ROWID;

-- A straight read never enters it.
CREATE INDEX actions_open ON actions (id) WHERE finished_at IS NULL;

-- Written and emptied again to see whether the disk takes writes after a failure.
CREATE TABLE probe (
  one    INTEGER PRIMARY KEY CHECK (one = 1),
  filler BLOB NOT NULL
);
