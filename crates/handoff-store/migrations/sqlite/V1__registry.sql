-- The registry: who holds which session, what was spent, and what happened.
--
-- Every key begins with the project. Money is whole nano-USD, times are milliseconds since 1970 in UTC, digests
-- and hashes are 32 bytes, labels and details are JSON texts. Counters that come from a node are kept by their
-- 64 bits. A row of sessions, transfers, budgets or budget_leases is only ever changed under a condition on the
-- version or epoch that the change was decided on.

CREATE TABLE projects (
    project_id    TEXT    NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    -- The latest store time that any change of the project was decided at. Time never steps back behind it.
    clock_ms      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    project_id         TEXT    NOT NULL REFERENCES projects,
    session_id         TEXT    NOT NULL,
    version            INTEGER NOT NULL,
    labels             TEXT    NOT NULL CHECK (json_valid(labels)),
    epoch              INTEGER NOT NULL,
    holder             TEXT    NOT NULL CHECK (holder IN ('source', 'incarnation', 'none')),
    holder_principal   TEXT CHECK ((holder = 'source') = (holder_principal IS NOT NULL)),
    holder_incarnation TEXT CHECK ((holder = 'incarnation') = (holder_incarnation IS NOT NULL)),
    holder_transfer    TEXT CHECK ((holder = 'incarnation') = (holder_transfer IS NOT NULL)),
    holder_node        TEXT CHECK ((holder = 'incarnation') = (holder_node IS NOT NULL)),
    holder_generation  INTEGER CHECK ((holder = 'incarnation') = (holder_generation IS NOT NULL)),
    pending_transfer   TEXT,
    live_transfer      TEXT,
    lease_until_ms     INTEGER,
    holder_gone        INTEGER NOT NULL CHECK (holder_gone IN (0, 1)),
    last_digest        BLOB,
    last_epoch         INTEGER CHECK ((last_digest IS NULL) = (last_epoch IS NULL)),
    last_standing      TEXT CHECK ((last_digest IS NULL) = (last_standing IS NULL)),
    return_nonce       TEXT,
    return_epoch       INTEGER CHECK ((return_nonce IS NULL) = (return_epoch IS NULL)),
    changed_at_ms      INTEGER NOT NULL,
    PRIMARY KEY (project_id, session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE transfers (
    project_id         TEXT    NOT NULL,
    transfer_id        TEXT    NOT NULL,
    session_id         TEXT    NOT NULL,
    status             TEXT    NOT NULL CHECK (status IN
        ('staged', 'provisioned', 'pushed', 'active', 'insolvent', 'terminated', 'expired')),
    version            INTEGER NOT NULL,
    event_seq          INTEGER NOT NULL,
    staged_at_ms       INTEGER NOT NULL,
    expires_at_ms      INTEGER NOT NULL,
    snapshot           BLOB    NOT NULL,
    mark_epoch         INTEGER,
    mark_ground        TEXT CHECK ((mark_epoch IS NULL) = (mark_ground IS NULL)),
    final_requested    INTEGER NOT NULL CHECK (final_requested IN (0, 1)),
    -- The tier as it was when the destination was sized: an operator's later change is not this transfer's.
    tier               TEXT,
    cpu_millis         INTEGER,
    memory_bytes       INTEGER,
    pids               INTEGER,
    egress_bits        INTEGER,
    run_price_pico     INTEGER,
    frozen_price_pico  INTEGER,
    push               TEXT CHECK (push IN ('requested', 'failed')),
    push_digest        BLOB CHECK ((push IS 'requested') = (push_digest IS NOT NULL)),
    push_missing       TEXT CHECK ((push IS 'failed') = (push_missing IS NOT NULL)),
    receipt            INTEGER NOT NULL CHECK (receipt IN (0, 1)),
    authorization_id   TEXT,
    resting            INTEGER NOT NULL CHECK (resting IN (0, 1)),
    waiting_since_ms   INTEGER,
    grace_until_ms     INTEGER,
    ended              TEXT CHECK (ended IN ('moved', 'grace_period_expired', 'ttl_expired', 'requested')),
    ended_words        TEXT CHECK ((ended IS 'requested') = (ended_words IS NOT NULL)),
    ended_at_ms        INTEGER CHECK ((ended IS NULL) = (ended_at_ms IS NULL)),
    ledger_closed      INTEGER NOT NULL CHECK (ledger_closed IN (0, 1)),
    changed_at_ms      INTEGER NOT NULL,
    PRIMARY KEY (project_id, transfer_id),
    FOREIGN KEY (project_id, session_id) REFERENCES sessions
) STRICT, WITHOUT ROWID;

CREATE INDEX transfers_of_session ON transfers (project_id, session_id, transfer_id);
CREATE INDEX transfers_unclosed ON transfers (project_id, transfer_id) WHERE ledger_closed = 0;
-- At most one pending and one live transfer of a session, whatever a program believes.
CREATE UNIQUE INDEX transfers_one_pending ON transfers (project_id, session_id)
    WHERE status IN ('staged', 'provisioned', 'pushed');
CREATE UNIQUE INDEX transfers_one_live ON transfers (project_id, session_id)
    WHERE status IN ('active', 'insolvent');

CREATE TABLE budgets (
    project_id     TEXT    NOT NULL,
    transfer_id    TEXT    NOT NULL,
    -- The transfer's version at the last change of this row.
    version        INTEGER NOT NULL,
    allocated_nano INTEGER NOT NULL,
    reserve_nano   INTEGER NOT NULL,
    recorded_nano  INTEGER NOT NULL,
    carved_from    TEXT,
    carved_nano    INTEGER CHECK ((carved_from IS NULL) = (carved_nano IS NULL)),
    PRIMARY KEY (project_id, transfer_id),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

CREATE TABLE budget_leases (
    project_id  TEXT    NOT NULL,
    transfer_id TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    -- The transfer's version at the last change of this row.
    version     INTEGER NOT NULL,
    node_id     TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    incarnation TEXT    NOT NULL,
    limit_nano  INTEGER NOT NULL,
    closed      TEXT CHECK (closed IN ('reported', 'written_off')),
    PRIMARY KEY (project_id, transfer_id, epoch),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

-- What was spent: one row per epoch, whose highest report stands for all before it, and one per increment that
-- was recorded outside of any epoch. Their sum is what the transfer has spent.
CREATE TABLE usage_reports (
    project_id     TEXT    NOT NULL,
    transfer_id    TEXT    NOT NULL,
    kind           TEXT    NOT NULL CHECK (kind IN ('totals', 'increment')),
    -- The epoch of totals; of an increment, the seq of its usage event.
    number         INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    body           BLOB CHECK ((kind = 'totals') = (body IS NOT NULL)),
    model_nano     INTEGER NOT NULL,
    compute_nano   INTEGER NOT NULL,
    egress_nano    INTEGER NOT NULL,
    wind_down_nano INTEGER NOT NULL,
    recorded_nano  INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    cache_read     INTEGER NOT NULL,
    cache_write_5m INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    reasoning      INTEGER NOT NULL,
    run_ms         INTEGER NOT NULL,
    frozen_ms      INTEGER NOT NULL,
    egress_bytes   INTEGER NOT NULL,
    detail         TEXT    NOT NULL,
    reported_at_ms INTEGER NOT NULL,
    PRIMARY KEY (project_id, transfer_id, kind, number),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

CREATE TABLE assignments (
    project_id    TEXT    NOT NULL,
    transfer_id   TEXT    NOT NULL,
    generation    INTEGER NOT NULL,
    node_id       TEXT    NOT NULL,
    observed      TEXT,
    last_alive_ms INTEGER,
    PRIMARY KEY (project_id, transfer_id, generation),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

CREATE INDEX assignments_of_node ON assignments (project_id, node_id, transfer_id);

CREATE TABLE authorizations (
    project_id       TEXT    NOT NULL,
    authorization_id TEXT    NOT NULL,
    transfer_id      TEXT    NOT NULL,
    deadline_ms      INTEGER NOT NULL,
    outcome          TEXT    NOT NULL CHECK (outcome IN ('open', 'claimed', 'declined', 'withdrawn')),
    reason           TEXT CHECK ((outcome = 'declined') = (reason IS NOT NULL)),
    PRIMARY KEY (project_id, authorization_id),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

-- A token is spent by the insert: a second one finds the key taken.
CREATE TABLE used_transfer_tokens (
    project_id    TEXT    NOT NULL,
    token_id      TEXT    NOT NULL,
    transfer_id   TEXT    NOT NULL,
    operation     TEXT    NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    used_at_ms    INTEGER NOT NULL,
    PRIMARY KEY (project_id, token_id),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

CREATE INDEX used_transfer_tokens_of_transfer ON used_transfer_tokens (project_id, transfer_id, token_id);

-- Accepted requests with their answers, kept as long as the transfer.
CREATE TABLE requests (
    project_id  TEXT    NOT NULL REFERENCES projects,
    principal   TEXT    NOT NULL,
    command     TEXT    NOT NULL,
    request_id  TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    transfer_id TEXT,
    reply       TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL,
    PRIMARY KEY (project_id, principal, command, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_of_transfer ON requests (project_id, transfer_id);

-- The eight types of usage event. `link` is the row's place in its transfer's chain, which it shares with the
-- transfer's audit rows; `hash` covers the previous hash and the stored bytes of the other columns.
CREATE TABLE usage_events (
    project_id  TEXT    NOT NULL,
    transfer_id TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    link        INTEGER NOT NULL,
    type        TEXT    NOT NULL CHECK (type IN
        ('snapshot_created', 'runtime_provisioned', 'state_pushed', 'activated',
         'usage_reported', 'insolvent', 'terminated', 'expired')),
    at_ms       INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    role        TEXT    NOT NULL,
    detail      TEXT    NOT NULL,
    hash        BLOB    NOT NULL,
    PRIMARY KEY (project_id, transfer_id, seq),
    FOREIGN KEY (project_id, transfer_id) REFERENCES transfers
) STRICT, WITHOUT ROWID;

-- Everything else that must be answered for. `chain` is the transfer's id, or the server instance's name for rows
-- about no transfer.
CREATE TABLE audit_log (
    project_id TEXT    NOT NULL REFERENCES projects,
    chain      TEXT    NOT NULL,
    link       INTEGER NOT NULL,
    session_id TEXT,
    kind       TEXT    NOT NULL,
    at_ms      INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    detail     TEXT    NOT NULL,
    hash       BLOB    NOT NULL,
    PRIMARY KEY (project_id, chain, link)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    project_id   TEXT    NOT NULL REFERENCES projects,
    node_id      TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    public_key   BLOB    NOT NULL CHECK (length(public_key) = 32),
    cpu_millis   INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    isolation    TEXT    NOT NULL CHECK (json_valid(isolation)),
    seen_at_ms   INTEGER NOT NULL,
    PRIMARY KEY (project_id, node_id)
) STRICT, WITHOUT ROWID;

-- A node belongs to one project, and says only its id when it is heard of.
CREATE UNIQUE INDEX nodes_by_id ON nodes (node_id);

CREATE TABLE blobs (
    project_id   TEXT    NOT NULL REFERENCES projects,
    digest       BLOB    NOT NULL CHECK (length(digest) = 32),
    size         INTEGER NOT NULL CHECK (size = length(bytes)),
    stored_at_ms INTEGER NOT NULL,
    bytes        BLOB    NOT NULL,
    PRIMARY KEY (project_id, digest)
) STRICT;

CREATE TABLE snapshots (
    project_id       TEXT    NOT NULL REFERENCES projects,
    digest           BLOB    NOT NULL CHECK (length(digest) = 32),
    credential_refs  TEXT    NOT NULL CHECK (json_valid(credential_refs)),
    labels           TEXT    NOT NULL CHECK (json_valid(labels)),
    kept_at_ms       INTEGER NOT NULL,
    PRIMARY KEY (project_id, digest)
) STRICT, WITHOUT ROWID;

-- Which blobs a snapshot needs. The bytes may be in `blobs` or in another store: this says only what must be kept.
CREATE TABLE snapshot_blobs (
    project_id TEXT    NOT NULL,
    snapshot   BLOB    NOT NULL,
    position   INTEGER NOT NULL,
    blob       BLOB    NOT NULL CHECK (length(blob) = 32),
    size       INTEGER NOT NULL,
    PRIMARY KEY (project_id, snapshot, position),
    FOREIGN KEY (project_id, snapshot) REFERENCES snapshots
) STRICT, WITHOUT ROWID;

CREATE INDEX snapshot_blobs_by_blob ON snapshot_blobs (project_id, blob);

-- Keys are kept by their hash alone.
CREATE TABLE api_keys (
    project_id      TEXT    NOT NULL REFERENCES projects,
    key_id          TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    hash            BLOB    NOT NULL CHECK (length(hash) = 32),
    role            TEXT    NOT NULL CHECK (role IN
        ('source', 'caller', 'orchestrator', 'node', 'viewer', 'admin')),
    content         INTEGER NOT NULL CHECK (content IN (0, 1)),
    created_at_ms   INTEGER NOT NULL,
    expires_at_ms   INTEGER,
    revoked_at_ms   INTEGER,
    last_used_at_ms INTEGER,
    PRIMARY KEY (project_id, key_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX api_keys_by_hash ON api_keys (hash);
