const port=+process.argv[2], database=process.argv[3]; const fs=require('fs'), os=require('os'), path=require('path');
const dir=fs.mkdtempSync(path.join(os.tmpdir(),'mig'));
fs.writeFileSync(path.join(dir,'001_a.js'),`exports.up=k=>k.schema.createTable('users',t=>{t.increments();t.string('name',20).notNullable().unique();t.jsonb('j');t.enu('role',['a','b']).defaultTo('a');t.decimal('bal',10,2);t.timestamps(true,true);t.specificType('tags','text[]');t.uuid('u').index();}).createTable('posts',t=>{t.bigIncrements();t.integer('user_id').unsigned().references('id').inTable('users').onDelete('CASCADE');t.text('title').comment('tt');t.boolean('pub');t.float('f');t.binary('b');t.date('d');t.index(['title','pub']);}); exports.down=k=>k.schema.dropTable('posts').dropTable('users');`);
fs.writeFileSync(path.join(dir,'002_b.js'),`exports.up=async k=>{await k.schema.alterTable('users',t=>{t.string('nick',30);t.string('name',40).notNullable().alter();t.renameColumn('j','info');}); await k('users').insert({name:'seed'}); await k.schema.alterTable('posts',t=>{t.dropColumn('f');t.unique(['title','user_id']);t.bigInteger('views').defaultTo(0);});}; exports.down=async k=>{await k.schema.alterTable('users',t=>{t.dropColumn('nick');t.renameColumn('info','j');});await k.schema.alterTable('posts',t=>{t.dropUnique(['title','user_id']);t.dropColumn('views');t.float('f');});};`);
const k=require('knex')({client:'pg',connection:{host:'127.0.0.1',port,user:'kvorum',database,options:process.argv[4]},migrations:{directory:dir,loadExtensions:['.js']}});
async function t(n,f){try{console.log(n,'=>',JSON.stringify(await f()));}catch(e){console.log(n,'EXC',e.code,String(e.message).slice(-300));}}

(async()=>{
 await t('latest',async()=>(await k.migrate.latest())[1].map(x=>path.basename(x)));
 await t('status',async()=>(await k.migrate.currentVersion()));
 await t('list',async()=>(await k.migrate.list()).map(x=>x.length));
 await t('info',async()=>[await k.schema.hasTable('users'),await k.schema.hasColumn('users','nick'),Object.entries(await k('users').columnInfo()).sort().map(([a,b])=>[a,b.type,b.maxLength,b.nullable])]);
 await t('crud',async()=>{const o=[]; o.push((await k('users').insert([{name:'ann',info:JSON.stringify({a:1}),bal:1.5,tags:['x','y']},{name:'bob'}]).returning(['id','name'])).map(r=>r.name));
  const ann=await k('users').where({name:'ann'}).first(); o.push(ann.info,ann.bal,ann.tags,ann.role);
  o.push((await k('posts').insert({user_id:ann.id,title:'p1',pub:true,b:Buffer.from([1,2]),d:'2024-01-02'}).returning('*')).map(r=>[r.title,r.views,r.b.length]));
  o.push(await k('users').join('posts','users.id','posts.user_id').select('users.name','posts.title').orderBy('users.name'));
  o.push(await k('users').insert({name:'ann',bal:9}).onConflict('name').merge().returning(['name','bal']));
  o.push((await k('users').insert({name:'ann'}).onConflict('name').ignore()).rowCount);
  o.push(await k('users').where('name','bob').update({bal:k.raw('coalesce(bal,0)+?',[2]),nick:k('users').max('name').where('name','<','z')},['bal','nick']));
  o.push(await k('users').count('* as n').first(), await k('users').max('bal as m').first(), await k('users').whereIn('id',k('posts').select('user_id')).pluck('name'));
  o.push(await k('users').whereRaw('?? @> ?',['info',JSON.stringify({a:1})]).pluck('name'), await k('users').whereExists(k('posts').whereRaw('posts.user_id=users.id')).pluck('name'));
  o.push(await k.transaction(async trx=>{await trx('users').where('name','bob').increment('bal',1);const sp=await trx.transaction();await sp('users').where('name','bob').del();await sp.rollback();return (await trx('users').where('name','bob').forUpdate().first()).bal;}));
  o.push(await k.transaction(async trx=>(await trx.raw('show transaction_isolation')).rows,{isolationLevel:'serializable'}));
  o.push(await k.with('w',k('users').select('id')).from('w').count('* as c').first(), await k('users').select('name',k.raw('row_number() over (order by name) rn')).orderBy('name').limit(2).offset(1));
  o.push(await k('users').distinct('role').groupBy('role').having(k.raw('count(*) > 1')), await k.union([k('users').select('name'),k('posts').select('title')]).orderBy('name'));
  
  o.push(await k.batchInsert('posts',Array.from({length:50},(_,i)=>({title:'b'+i})),20).then(x=>x.length)); 
  o.push((await k('posts').whereLike('title','b%').del()), await k('posts').truncate().then(r=>r.command)); return o;});
 await t('views',async()=>{await k.schema.createView('v',v=>{v.columns(['n']);v.as(k('users').select('name'));}); const r=await k('v').count('* as c').first(); await k.schema.dropView('v'); return r;});
 await t('table',async()=>{await k.schema.renameTable('posts','articles'); await k.schema.table('articles',t=>{t.dropForeign('user_id','posts_user_id_foreign');t.setNullable('title');t.dropNullable('title');}); await k.schema.renameTable('articles','posts'); return 1;});
 await t('rollback',async()=>(await k.migrate.rollback(undefined,true))[1].map(x=>path.basename(x)));
 await t('left',async()=>(await k.raw("select count(*) from information_schema.tables where table_schema='public'")).rows);
 await k.destroy(); })();
