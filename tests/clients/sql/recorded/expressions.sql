1: create table t (id int primary key, name varchar(20), n int, m int, at timestamp)

1: insert into t select g, 'Name' || g, g, g % 10, timestamp '2020-01-01' + g * interval '1 hour' from generate_series(1, 200) g

1: create index on t (lower(name))

1: create index t_sum on t ((n + m), id desc)

1: create unique index t_up on t (upper(name)) where n > 100

1: select id from t where lower(name) = 'name7'

1: select id from t where lower(name) = lower('NAME8')

1: select id from t where lower(name) in ('name9', 'name10') order by id

1: select count(*) from t where lower(name) >= 'name19' and lower(name) < 'name2'

1: select id from t where lower(name) like 'name19%' order by lower(name)

1: select lower(name) from t order by lower(name) limit 3

1: select lower(name) from t order by lower(name) desc limit 3

1: select id from t where n + m = 20 order by id

1: select id from t where n + m > 205 order by n + m, id desc

1: insert into t values (300, 'NAME150', 300, 0)

1: insert into t values (301, 'name50', 301, 0)

1: insert into t values (302, null, 302, 0)

1: select id from t where lower(name) is null

1: update t set name = 'Changed' where id = 7

1: select id from t where lower(name) = 'changed'

1: select id from t where lower(name) = 'name7'

1: update t set n = n + 1000 where id < 4

1: select id, n + m from t where n + m > 1000 order by n + m

1: delete from t where lower(name) = 'name9'

1: select count(*) from t where lower(name) = 'name9'

1: select indexname, indexdef from pg_indexes where indexname = 't_sum'

1: select pg_get_indexdef('t_sum'::regclass, 1, true), pg_get_indexdef('t_sum'::regclass, 2, true)

1: select attname from pg_attribute where attrelid = 't'::regclass and attnum > 0 order by attnum

1: select indkey::text from pg_index where indexrelid = 't_sum'::regclass

1: select * from t where id = 10

1: create table u (id int primary key, mail text)

1: create unique index u_mail on u (lower(mail))

1: insert into u values (1, 'A@x')

1: insert into u values (2, 'a@X')

1: insert into u values (2, 'a@X') on conflict (lower(mail)) do nothing

1: insert into u values (2, 'a@X') on conflict (lower(mail)) do update set mail = excluded.mail returning *

1: insert into u values (2, 'a@X') on conflict (upper(mail)) do nothing

1: insert into u values (2, 'b@x')

1: update u set mail = 'A@X' where id = 2

1: select * from u order by id

1: create unique index u_two on u ((length(mail)))

1: select count(*) from pg_class where relname = 'u_two'

1: create index bad on u (now())

1: create index bad on u ((mail || now()::text))

1: create index bad on u (nosuch(mail))

1: create index bad on u ((count(*)))

1: create index bad on u ((select 1))

1: create index on u ((mail))

1: create index if not exists u_mail on u (lower(mail))

1: alter table u rename column mail to address

1: select id from u where lower(address) = 'b@x'

1: insert into u values (5, 'B@X')

1: alter table u add column extra int

1: insert into u values (6, 'c', 7)

1: select * from u order by id

1: alter table u drop column address

1: select count(*) from pg_index where indrelid = 'u'::regclass

1: select * from u order by id

1: drop index t_sum

1: select id from t where n + m = 20 order by id

1: insert into t values (400, 'x', 1, 1)

1: create index on t (date_trunc('day', at))

1: select count(*) from t where date_trunc('day', at) = '2020-01-03'

1: select date_trunc('day', at) d, count(*) from t group by 1 order by 1 limit 3

1: create temp table tt (v text)

1: create unique index on tt (lower(v))

1: insert into tt values ('A')

1: insert into tt values ('a')

1: begin

1: create index tti on tt ((v || v))

1: rollback

1: select v from tt where v || v = 'AA'

1: select a.id from t a join t b on lower(a.name) = lower(b.name) where a.id = 20

1: truncate t

1: insert into t values (1, 'Q', 1, 1)

1: select id from t where lower(name) = 'q'

1: drop table t
