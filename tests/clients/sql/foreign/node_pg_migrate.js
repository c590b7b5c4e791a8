// What migrations of node-pg-migrate do; prints what was run. Arguments: port, database, options.
const fs = require('fs'), os = require('os'), path = require('path');
const [, , port, database, options] = process.argv;
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'migrations'));
const write = (name, up, down) => fs.writeFileSync(path.join(dir, name), `exports.up = pgm => { ${up} }; exports.down = pgm => { ${down} };`);
write('1_first.js', `pgm.createTable('users', { id: 'id', name: { type: 'varchar(20)', notNull: true, unique: true }, j: 'jsonb', createdAt: { type: 'timestamp', notNull: true, default: pgm.func('current_timestamp') } }); pgm.createTable('posts', { id: { type: 'bigint', primaryKey: true, sequenceGenerated: { precedence: 'BY DEFAULT' } }, userId: { type: 'integer', notNull: true, references: '"users"', onDelete: 'cascade' }, body: { type: 'text', notNull: true, comment: 'the text' } }, { comment: 'posts of users' }); pgm.createIndex('posts', 'userId'); pgm.createType('mood', ['sad', 'ok']);`, `pgm.dropTable('posts'); pgm.dropTable('users'); pgm.dropType('mood');`);
write('2_second.js', `pgm.sql("insert into users (name) values ('seed')"); pgm.addColumns('users', { lead: { type: 'varchar(1000)', notNull: true, default: 'x' }, m: 'mood' }); pgm.alterColumn('users', 'name', { type: 'varchar(90)', using: 'name::varchar(90)' }); pgm.addConstraint('posts', 'posts_body_check', { check: 'length(body) > 0' }); pgm.renameColumn('users', 'j', 'info'); pgm.createView('names', {}, 'select name from users'); pgm.createSequence('sq', { start: 10 }); pgm.addIndex('users', ['lead', { name: 'name', sort: 'DESC' }], { where: 'm is not null', name: 'ul' });`, `pgm.dropIndex('users', [], { name: 'ul' }); pgm.dropSequence('sq'); pgm.dropView('names'); pgm.renameColumn('users', 'info', 'j'); pgm.dropConstraint('posts', 'posts_body_check'); pgm.dropColumns('users', ['lead', 'm']);  pgm.sql('delete from users');`);
write('3_third.js', `pgm.noTransaction(); pgm.createIndex('posts', 'body', { concurrently: true, name: 'pb' });`, `pgm.dropIndex('posts', 'body', { name: 'pb' });`);
(async () => {
  const { runner } = require('node-pg-migrate');
  const quiet = { debug() {}, info() {}, warn() {}, error: console.log };
  const go = (direction, count) => runner({ databaseUrl: { host: '127.0.0.1', port: +port, user: 'kvorum', database, options }, dir, migrationsTable: 'pgmigrations', direction, count, checkOrder: true, logger: quiet, verbose: false });
  for (const [direction, count] of [['up', Infinity], ['down', 1], ['up', Infinity], ['down', 2], ['up', 1], ['down', 3]]) {
    try { console.log(direction, '=>', JSON.stringify((await go(direction, count)).map(m => m.name))); } catch (e) { console.log(direction, 'EXC', e.code, e.message); }
  }
})();
