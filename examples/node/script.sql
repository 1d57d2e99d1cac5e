-- What was run to make this example. One section is one captured LTX file;
-- statements inside a section that no BEGIN holds together are SQLite commits
-- of their own. $CELL stands for the cell's scope.

--! capture 1: the tables of celld itself and the object's name
CREATE TABLE _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k));
CREATE TABLE _cf_ALARM(scope TEXT PRIMARY KEY, at_ms INTEGER, retry INTEGER, counted_retry INTEGER, generation INTEGER);
CREATE TABLE _cf_METADATA(scope TEXT PRIMARY KEY, actor_name TEXT);
INSERT INTO _cf_METADATA(scope, actor_name) VALUES('$CELL', 'aisle 9');

--! capture 2: three application tables, an index and a view
CREATE TABLE bins(id INTEGER PRIMARY KEY, label TEXT NOT NULL, weight REAL, photo BLOB);
CREATE TABLE tags(name TEXT COLLATE NOCASE PRIMARY KEY, bin INTEGER) WITHOUT ROWID;
CREATE TABLE log(message);
CREATE INDEX bins_label ON bins(label);
CREATE VIEW heavy AS SELECT * FROM bins WHERE weight > 1;

--! capture 3: rows of every storage class, in two commits
BEGIN;
INSERT INTO bins VALUES(1, 'nuts', 2, NULL), (2, 'bolts', 0.5, x'00ff'), (3, 'say "hi" <a&b> é', 0, x'');
INSERT INTO tags VALUES('Red', 1), ('blue', 2);
COMMIT;
INSERT INTO log VALUES('opened'), (42), (NULL), (1e300);

--! capture 4: updates, a changed key, a key spelled anew, a delete, and a row that came and went
BEGIN;
UPDATE bins SET weight = 2.25 WHERE id = 1;
UPDATE bins SET id = 7 WHERE id = 2;
DELETE FROM bins WHERE id = 3;
UPDATE tags SET name = 'RED' WHERE name = 'red';
INSERT INTO log VALUES('transient');
DELETE FROM log WHERE message = 'transient';
COMMIT;

--! capture 5: key-value storage: the number 2, the string "hello", the object {"a":[1,true]}, and a row of another scope
INSERT INTO _cf_KV(scope, k, v) VALUES
  ('$CELL', 'count', x'ff0f4904'),
  ('$CELL', 'greeting', x'ff0f220568656c6c6f'),
  ('$CELL', 'nested', x'ff0f6f22016141024902542400027b01'),
  ('Shelf:elsewhere', 'count', x'ff0f4906');

--! capture 6: a value that spills over two overflow pages
INSERT INTO log VALUES(printf('%.8000c', 'x'));

--! truncate
--! capture 7: the first file after a TRUNCATE checkpoint, which holds every page
INSERT INTO bins VALUES(4, 'screws', 1, NULL);

--! capture 8: a new column, and the long value is deleted
BEGIN;
ALTER TABLE bins ADD COLUMN side TEXT DEFAULT 'left';
UPDATE bins SET side = 'right' WHERE id = 7;
DELETE FROM log WHERE length(message) > 1000;
COMMIT;

--! capture 9: a table is renamed and gets a row
ALTER TABLE log RENAME TO journal;
INSERT INTO journal VALUES('renamed');

--! capture 10: a table is dropped, a key-value pair is replaced and one deleted
DROP TABLE tags;
UPDATE _cf_KV SET v = x'ff0f54' WHERE scope = '$CELL' AND k = 'count';
DELETE FROM _cf_KV WHERE scope = '$CELL' AND k = 'greeting';

--! capture 11: nothing but the replicator's own sequence
UPDATE _litestream_seq SET seq = seq + 1;

--! capture 12: the last row
INSERT INTO bins(id, label) VALUES(5, 'hooks');
