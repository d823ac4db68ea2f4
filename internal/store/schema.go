package store

// steps bring a database from one version to the next. A step that was released
// is never changed. Times are milliseconds since 1970, UTC; 0 is none.
func steps() []string {
	return []string{`
CREATE TABLE boxes (
	id          TEXT PRIMARY KEY,
	tenant      TEXT NOT NULL,
	principal   TEXT NOT NULL,
	phase       TEXT NOT NULL,
	reason      TEXT NOT NULL DEFAULT '',
	tier        TEXT NOT NULL DEFAULT '',
	tier_reason TEXT NOT NULL DEFAULT '',
	image       TEXT NOT NULL DEFAULT '',
	weak        TEXT NOT NULL DEFAULT '[]',
	spec        BLOB NOT NULL DEFAULT x'',
	state       BLOB NOT NULL DEFAULT x'',
	metadata    TEXT NOT NULL DEFAULT '{}',
	detail      TEXT NOT NULL DEFAULT '',
	account     BLOB NOT NULL DEFAULT x'',
	created     INTEGER NOT NULL,
	ends        INTEGER NOT NULL DEFAULT 0,
	destroyed   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX boxes_of_tenant ON boxes (tenant, created, id);
CREATE INDEX boxes_alive ON boxes (phase) WHERE phase <> 'destroyed';

CREATE TABLE keys (
	id        TEXT PRIMARY KEY,
	hash      BLOB NOT NULL UNIQUE,
	tenant    TEXT NOT NULL,
	principal TEXT NOT NULL,
	scopes    TEXT NOT NULL,
	created   INTEGER NOT NULL,
	revoked   INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE answered (
	tenant  TEXT NOT NULL,
	key     TEXT NOT NULL,
	request BLOB NOT NULL,
	box     TEXT NOT NULL,
	created INTEGER NOT NULL,
	PRIMARY KEY (tenant, key)
) STRICT;
`, `
CREATE TABLE snapshots (
	tenant    TEXT NOT NULL,
	id        TEXT NOT NULL,
	name      TEXT NOT NULL DEFAULT '',
	principal TEXT NOT NULL,
	kind      TEXT NOT NULL,
	tier      TEXT NOT NULL,
	image     TEXT NOT NULL,
	box       TEXT NOT NULL,
	spec      BLOB NOT NULL,
	bytes     INTEGER NOT NULL,
	created   INTEGER NOT NULL,
	PRIMARY KEY (tenant, id)
) STRICT;
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE name <> '';

CREATE TABLE volumes (
	tenant    TEXT NOT NULL,
	name      TEXT NOT NULL,
	principal TEXT NOT NULL,
	file      TEXT NOT NULL UNIQUE,
	bytes     INTEGER NOT NULL,
	created   INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
) STRICT;
`}
}
