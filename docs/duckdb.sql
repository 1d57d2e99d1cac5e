-- What the bucket sink's Parquet objects mean, as DuckDB views: the current
-- rows of every exported table across cells, what is certified, and what is
-- missing. DuckDB 1.3 or newer.
--
-- The objects are read where they are; set the path first, in this session or
-- in a file that is loaded before this one:
--
--   SET VARIABLE export_path = 's3://acme-celld-export/export/changes/**/*.parquet';
--   .read duckdb.sql
--   SELECT cell, key, value FROM export_rows WHERE "table" = 'items';
--   SELECT cell, export_value(columns, value, 'qty')::INTEGER AS qty FROM export_rows WHERE "table" = 'items';
--
-- The views read all objects each time. For more than a look, store what was
-- loaded once and make the other views of that:
--
--   CREATE TABLE loaded AS FROM export_objects;
--   CREATE OR REPLACE VIEW export_objects AS FROM loaded;
--
-- Records are a set: they may arrive twice, in any order, and late. The views
-- are a function of the set, so a query is right for what is there, and
-- export_certified tells up to where nothing is missing.

CREATE OR REPLACE VIEW export_objects AS
SELECT kind, script, class, cell, cell_name, facet, incarnation, epoch, txid, "commit", committed_at, node, origin, fragment, fragments, body
FROM read_parquet(getvariable('export_path'));

-- Erased streams: load the objects below export/tombstones/ into this table
-- to have their rows hidden. incarnation NULL is every incarnation.
CREATE TABLE IF NOT EXISTS export_tombstones (
  script VARCHAR, class VARCHAR, cell VARCHAR, facet VARCHAR, incarnation UBIGINT);

-- Positions compare as (epoch, txid, commit).
CREATE OR REPLACE MACRO export_position(p) AS CASE WHEN p IS NULL OR json_type(p) = 'NULL' THEN NULL ELSE
  {'epoch': CAST(p ->> '$.epoch' AS UBIGINT), 'txid': CAST(p ->> '$.txid' AS UBIGINT), 'commit': CAST(p ->> '$.commit' AS UBIGINT)} END;

-- The value of a column in a row, as JSON: NULL where the row has none.
CREATE OR REPLACE MACRO export_value(columns, value, name) AS
  json_extract(value, '$[' || (list_position(columns, name) - 1) || ']');

-- Whole records, each once. what tells apart the records of one position:
-- table and generation, snapshot, or what a delete names. rows are the row
-- changes of all fragments in order.
CREATE OR REPLACE VIEW export_records AS
WITH read AS (
  SELECT {'script': script, 'class': class, 'cell': cell, 'facet': coalesce(facet, ''), 'incarnation': incarnation} AS stream,
    {'epoch': epoch, 'txid': txid, 'commit': "commit"} AS position,
    kind, origin, cell_name, committed_at, node, fragment, fragments, CAST(body AS JSON) AS body
  FROM export_objects
), named AS (
  SELECT *, CASE kind
    WHEN 'rows' THEN [body ->> '$.table', body ->> '$.generation']
    WHEN 'schema' THEN [body ->> '$.table', body ->> '$.generation']
    WHEN 'snapshot' THEN [body ->> '$.snapshot_id', body ->> '$.table', body ->> '$.generation']
    WHEN 'snapshot_end' THEN [body ->> '$.snapshot_id']
    WHEN 'deleted' THEN [body ->> '$.target_facet', coalesce(body ->> '$.target_incarnation', body ->> '$.through_incarnation', '0')]
    WHEN 'bulk' THEN list_sort(list_transform(from_json(body -> '$.tables', '["JSON"]'), lambda t: concat(t ->> '$.table', '/', t ->> '$.generation')))
    ELSE [] END AS what
  FROM read
), once AS (
  SELECT * FROM named
  QUALIFY row_number() OVER (PARTITION BY stream, position, kind, origin, what, fragment ORDER BY body) = 1
)
SELECT stream, position, kind, origin, what,
  CASE origin WHEN 'repair' THEN 2 WHEN 'snapshot' THEN 1 ELSE 0 END AS rank,
  first(body ORDER BY fragment) AS body,
  flatten(list(from_json(body -> '$.rows', '["JSON"]') ORDER BY fragment) FILTER (kind IN ('rows', 'snapshot'))) AS rows,
  first(cell_name ORDER BY fragment) AS cell_name, first(committed_at ORDER BY fragment) AS committed_at, first(node ORDER BY fragment) AS node
FROM once
GROUP BY stream, position, kind, origin, what
HAVING count(*) = max(fragments);

-- Streams that are gone: facets that a delete on their root names, and erased
-- ones.
CREATE OR REPLACE VIEW export_removed AS
WITH deletes AS (
  SELECT stream, body ->> '$.target_facet' AS target, CAST(body ->> '$.target_incarnation' AS UBIGINT) AS exactly,
    coalesce(body ->> '$.subtree', 'false') = 'true' AS subtree, CAST(body ->> '$.through_incarnation' AS UBIGINT) AS through
  FROM export_records WHERE kind = 'deleted' AND stream.facet = ''
), streams AS (SELECT DISTINCT stream FROM export_records)
SELECT DISTINCT s.stream
FROM streams s JOIN deletes d
  ON d.stream.script = s.stream.script AND d.stream.class = s.stream.class AND d.stream.cell = s.stream.cell AND s.stream.facet <> ''
WHERE d.target IS NOT NULL AND CASE
  WHEN d.through IS NOT NULL THEN s.stream.incarnation <= d.through
    AND (s.stream.facet = d.target OR d.subtree AND starts_with(s.stream.facet, d.target || '/'))
  ELSE s.stream.facet = d.target AND (d.exactly IS NULL OR d.exactly = s.stream.incarnation)
    OR d.subtree AND starts_with(s.stream.facet, d.target || '/') END
UNION
SELECT s.stream
FROM streams s JOIN export_tombstones t
  ON t.script = s.stream.script AND t.class = s.stream.class AND t.cell = s.stream.cell AND coalesce(t.facet, '') = s.stream.facet
WHERE t.incarnation IS NULL OR t.incarnation = s.stream.incarnation;

-- The records that hold: of streams that are there, above their own deletion.
CREATE OR REPLACE VIEW export_held AS
WITH deleted AS (
  SELECT stream, max(position) AS position
  FROM export_records WHERE kind = 'deleted' AND (body ->> '$.target_facet') IS NULL
  GROUP BY stream
)
SELECT r.*
FROM export_records r ANTI JOIN export_removed x ON x.stream = r.stream LEFT JOIN deleted d ON d.stream = r.stream
WHERE d.position IS NULL OR r.position > d.position;

-- Complete snapshots, all of whose records are there, by rank: the highest of
-- a scope replaces what was before it.
CREATE OR REPLACE VIEW export_snapshots AS
WITH held AS MATERIALIZED (FROM export_held),
counted AS (
  SELECT stream, position, body ->> '$.snapshot_id' AS id, count(*) AS records FROM held WHERE kind = 'snapshot' GROUP BY ALL
)
SELECT e.stream, e.body ->> '$.scope' AS scope, from_json(e.body -> '$.tables', '["JSON"]') AS tables,
  {'position': e.position, 'rank': e.rank, 'id': (e.body ->> '$.snapshot_id')} AS cut
FROM held e LEFT JOIN counted c ON c.stream = e.stream AND c.position = e.position AND c.id = (e.body ->> '$.snapshot_id')
WHERE e.kind = 'snapshot_end' AND coalesce(c.records, 0) = CAST(e.body ->> '$.records' AS UBIGINT);

-- Table generations: closed ones hold no rows any more; of uncertain ones
-- changes are missing that no snapshot made good. cut is the complete
-- snapshot that replaces what was before it.
CREATE OR REPLACE VIEW export_generations AS
WITH held AS MATERIALIZED (FROM export_held),
snapshots AS MATERIALIZED (FROM export_snapshots),
stream_cuts AS (
  SELECT stream, max(cut) AS cut FROM snapshots WHERE scope = 'stream' GROUP BY stream
), listed AS (
  SELECT stream, cut, unnest(tables) AS t FROM snapshots WHERE scope <> 'stream'
), table_cuts AS (
  SELECT stream, t ->> '$.table' AS "table", CAST(t ->> '$.generation' AS UBIGINT) AS generation, max(cut) AS cut FROM listed GROUP BY ALL
), named AS (
  SELECT stream, position, kind, body ->> '$.table' AS "table", CAST(body ->> '$.generation' AS UBIGINT) AS generation,
    kind = 'schema' AND coalesce(body ->> '$.dropped', 'false') = 'true' AS dropped, body
  FROM held WHERE kind IN ('rows', 'snapshot', 'schema')
), bulks AS (
  SELECT stream, position, unnest(from_json(body -> '$.tables', '["JSON"]')) AS t FROM held WHERE kind = 'bulk'
), bulked AS (
  SELECT stream, position, t ->> '$.table' AS "table", CAST(t ->> '$.generation' AS UBIGINT) AS generation FROM bulks
), renamed AS (
  SELECT stream, body ->> '$.renamed_from' AS "table", max(position) AS position
  FROM held WHERE kind = 'schema' AND (body ->> '$.renamed_from') IS NOT NULL GROUP BY ALL
), seen AS (
  SELECT stream, "table", generation, min(position) AS opened, bool_or(dropped) AS dropped,
    max(position) FILTER (bulk) AS bulk, arg_max(body, position) FILTER (kind = 'schema' AND NOT dropped) AS definition
  FROM (SELECT stream, position, kind, "table", generation, dropped, body, false AS bulk FROM named
    UNION ALL SELECT stream, position, 'bulk', "table", generation, false, NULL, true FROM bulked)
  GROUP BY ALL
)
SELECT s.stream, s."table", s.generation, s.opened, s.definition,
  greatest(sc.cut, tc.cut) AS cut, s.bulk,
  s.dropped OR s.generation < max(s.generation) OVER (PARTITION BY s.stream, s."table")
    OR r.position IS NOT NULL AND r.position >= s.opened AS closed,
  s.bulk IS NOT NULL AND (greatest(sc.cut, tc.cut) IS NULL OR s.bulk > greatest(sc.cut, tc.cut).position) AS uncertain
FROM seen s
  LEFT JOIN stream_cuts sc ON sc.stream = s.stream
  LEFT JOIN table_cuts tc ON tc.stream = s.stream AND tc."table" = s."table" AND tc.generation = s.generation
  LEFT JOIN renamed r ON r.stream = s.stream AND r."table" = s."table";

-- The current rows of every table of every cell. key and value are JSON
-- arrays in the order of key_columns and columns; integers, reals and text are
-- JSON's, a blob is {"$blob": base64}.
CREATE OR REPLACE VIEW export_rows AS
WITH generations AS MATERIALIZED (SELECT * FROM export_generations WHERE NOT closed),
changes AS (
  SELECT h.stream, g."table", g.generation, h.position, h.rank, h.cell_name,
    from_json(h.body -> '$.columns', '["VARCHAR"]') AS columns, from_json(h.body -> '$.key_columns', '["VARCHAR"]') AS key_columns,
    unnest(h.rows) AS change, generate_subscripts(h.rows, 1) AS index
  FROM export_held h JOIN generations g
    ON g.stream = h.stream AND g."table" = (h.body ->> '$.table') AND g.generation = CAST(h.body ->> '$.generation' AS UBIGINT)
  WHERE h.kind = 'rows' AND (g.cut IS NULL OR h.position > g.cut.position)
    OR h.kind = 'snapshot' AND g.cut = {'position': h.position, 'rank': h.rank, 'id': (h.body ->> '$.snapshot_id')}
), newest AS (
  SELECT *, change ->> 0 AS op, change -> 1 AS key, change -> 2 AS value FROM changes
  QUALIFY row_number() OVER (PARTITION BY stream, "table", generation, change -> 1 ORDER BY position DESC, rank DESC, index DESC) = 1
)
SELECT stream.script AS script, stream.class AS class, stream.cell AS cell, cell_name, nullif(stream.facet, '') AS facet,
  stream.incarnation AS incarnation, "table", generation, key_columns, columns, key, value,
  position.epoch AS epoch, position.txid AS txid, position."commit" AS "commit"
FROM newest WHERE op <> 'D';

-- Per stream and epoch: up to where nothing is missing. Watermarks count what
-- lies between two positions; one that counts right and goes on from the end
-- of another certifies its range.
CREATE OR REPLACE VIEW export_certified AS
WITH RECURSIVE held AS MATERIALIZED (FROM export_held),
census AS (
  SELECT stream, position, count(*) AS records FROM held
  WHERE kind NOT IN ('watermark', 'recovered') AND origin <> 'repair' GROUP BY ALL
), marks AS (
  SELECT DISTINCT stream, export_position(body -> '$.from') AS since, export_position(body -> '$.through') AS through,
    CAST(body ->> '$.commits' AS UBIGINT) AS commits, CAST(body ->> '$.records' AS UBIGINT) AS records
  FROM held WHERE kind = 'watermark' AND position = export_position(body -> '$.through')
), valid AS MATERIALIZED (
  SELECT m.stream, m.since, m.through
  FROM marks m LEFT JOIN census c
    ON c.stream = m.stream AND c.position <= m.through
    AND CASE WHEN m.since IS NULL THEN c.position.epoch >= m.through.epoch ELSE c.position > m.since END
  GROUP BY m.stream, m.since, m.through, m.commits, m.records
  HAVING count(c.position) = m.commits AND coalesce(sum(c.records), 0) = m.records
), chain AS (
  SELECT stream, through FROM valid WHERE since IS NULL
  UNION
  SELECT v.stream, v.through FROM chain c JOIN valid v
    ON v.stream = c.stream AND v.since = c.through AND v.since.epoch = v.through.epoch AND v.through > c.through
)
SELECT stream.script AS script, stream.class AS class, stream.cell AS cell, nullif(stream.facet, '') AS facet,
  stream.incarnation AS incarnation, stream, through.epoch AS epoch, max(through).txid AS txid, max(through)."commit" AS "commit"
FROM chain GROUP BY stream, through.epoch;

-- What is missing: gaps that producers or the reconciler tell of, epochs that
-- went on from more than is certified, recoveries of dead nodes, and tables
-- with changes that no record carries. A snapshot that reaches the bound
-- closes a gap; repair and backfill write such snapshots.
CREATE OR REPLACE VIEW export_gaps AS
WITH held AS MATERIALIZED (FROM export_held),
certified AS MATERIALIZED (FROM export_certified),
generations AS MATERIALIZED (FROM export_generations),
records AS MATERIALIZED (FROM export_records),
streams AS (SELECT DISTINCT stream FROM records WHERE kind <> 'recovered'),
saved AS (
  SELECT stream, position, body, export_position(body -> '$.head') AS head, coalesce(body ->> '$.loss', 'false') = 'true' AS loss
  FROM records WHERE kind = 'recovered'
), adopted AS (
  SELECT s.stream, v.position, v.body, v.head, v.loss
  FROM saved v JOIN streams s
    ON s.stream.class = v.stream.class AND s.stream.cell = v.stream.cell AND s.stream.facet = v.stream.facet
    AND (v.stream.script = '' OR v.stream.script = s.stream.script) AND (s.stream.facet <> '' OR s.stream.incarnation <= v.head.epoch)
  QUALIFY s.stream.facet <> '' OR s.stream.incarnation = max(s.stream.incarnation) OVER (PARTITION BY v.stream, v.position, v.body, s.stream.script)
), deleted AS (
  SELECT stream, max(position) AS position FROM records WHERE kind = 'deleted' AND (body ->> '$.target_facet') IS NULL GROUP BY stream
), recovered AS (
  SELECT a.* FROM adopted a ANTI JOIN export_removed x ON x.stream = a.stream LEFT JOIN deleted d ON d.stream = a.stream
  WHERE d.position IS NULL OR a.position > d.position
  UNION ALL
  SELECT v.* FROM saved v ANTI JOIN adopted a ON a.position = v.position AND a.body = v.body AND a.stream.cell = v.stream.cell AND a.stream.facet = v.stream.facet AND a.stream.class = v.stream.class
), bounds AS (
  SELECT stream, 'gap' AS gap_kind, position, CAST(body ->> '$.to.epoch' AS UBIGINT) AS bound_epoch, CAST(body ->> '$.to.txid' AS UBIGINT) AS bound_txid,
    false AS loss, body ->> '$.reason' AS reason, body
  FROM held WHERE kind = 'gap'
  UNION ALL
  SELECT stream, 'link', position, CAST(body ->> '$.prev_epoch' AS UBIGINT), CAST(body ->> '$.prev_txid' AS UBIGINT), false, NULL, body
  FROM held WHERE kind = 'link' AND (body ->> '$.prev_epoch') IS NOT NULL AND (body ->> '$.prev_txid') IS NOT NULL
  UNION ALL
  SELECT stream, 'recovered', position, head.epoch, head.txid, loss, NULL, body FROM recovered
), stream_cuts AS (
  SELECT stream, max(cut.position) AS position FROM export_snapshots WHERE scope = 'stream' GROUP BY stream
), judged AS (
  SELECT b.*, c.txid AS certified_txid, coalesce(c.txid, 0) AS reached,
    CASE WHEN b.loss THEN greatest(b.bound_txid, coalesce(c.txid, 0)) ELSE b.bound_txid END AS needed
  FROM bounds b LEFT JOIN certified c ON c.stream = b.stream AND c.epoch = b.bound_epoch
), found AS (
  SELECT j.stream, j.gap_kind, j.position, j.bound_epoch, j.needed AS bound_txid, j.certified_txid,
    NULL::VARCHAR AS "table", NULL::UBIGINT AS generation, j.reason, j.body AS detail
  FROM judged j LEFT JOIN stream_cuts s ON s.stream = j.stream
  WHERE (j.gap_kind = 'gap' OR j.loss AND j.bound_txid <> j.reached OR NOT j.loss AND j.bound_txid > j.reached)
    AND (s.position IS NULL OR s.position.epoch < j.bound_epoch OR s.position.epoch = j.bound_epoch AND s.position.txid < j.needed)
  UNION ALL
  SELECT stream, 'bulk', NULL, NULL, NULL, NULL, "table", generation, 'bulk', NULL FROM generations WHERE uncertain AND NOT closed
)
SELECT stream.script AS script, stream.class AS class, stream.cell AS cell, nullif(stream.facet, '') AS facet,
  stream.incarnation AS incarnation, gap_kind, position.epoch AS epoch, position.txid AS txid, position."commit" AS "commit",
  bound_epoch, bound_txid, certified_txid, "table" AS table_name, generation, reason, detail
FROM found;
