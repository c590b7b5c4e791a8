-- partial indexes: what is unique, upserts, which rows a WHERE finds, how they are told
insert into live (id, email) values (7, 'a')
insert into live (id, email, gone) values (7, 'a', '2024-01-01') ;; insert into live (id, email) values (8, 'a')
insert into live (id, email, gone) values (7, 'a', '2024-01-01'), (8, 'a', '2024-01-01') ;; select id from live where email = 'a' order by id
update live set gone = null where id = 3
update live set gone = now() where id = 2 ;; update live set gone = null where id = 3 ;; select id from live where email = 'b' and gone is null
update live set gone = now() where id = 2 ;; update live set gone = null where id = 3 ;; update live set gone = null where id = 2
delete from live where id = 2 ;; update live set gone = null where email = 'b' ;; select id, gone from live where email = 'b'
update live set email = 'a' where gone is not null ;; select id from live where email = 'a' order by id
update live set email = 'q' where id in (1, 2)
insert into live (id, email) values (7, 'q'), (8, 'q')
insert into live (id, email, gone) values (7, 'q', null), (8, 'q', '2024-01-01') ;; select id from live where email = 'q' and gone is null
insert into live (id, kind, n, ok) values (7, 'y', 7, false) ;; update live set ok = true where id = 7
insert into live (id, kind, n, ok) values (7, 'x', 1, true) ;; update live set kind = 'y' where id = 7 ;; update live set n = 7 where id = 7
insert into live (id, kind, n, ok) values (7, 'z', null, true), (8, 'z', null, true) ;; select id from live where kind = 'z' and n is null order by id
insert into live (id, email) values (7, 'a') on conflict (email) where gone is null do update set n = live.n + 100 returning id, n
insert into live (id, email) values (7, 'a') on conflict (email) where gone is null do nothing
insert into live (id, email) values (7, 'a') on conflict do nothing ;; select count(*) from live
insert into live (id, email) values (7, 'a') on conflict (email) do nothing
insert into live (id, email) values (7, 'a') on conflict (email) where n = 1 do nothing
insert into live (id, email) values (7, 'a') on conflict (email) where gone is null and n > 1 do nothing
insert into live (id, email) values (7, 'a') on conflict (email) where gone is not null do nothing
insert into live (id, email) values (7, 'a') on conflict on constraint live_email do nothing
insert into live (id, email) values (1, 'zz') on conflict (email) where gone is null do nothing
insert into live (id, email) values (7, 'a') on conflict (id) do nothing
insert into live (id, kind, n, ok) values (7, 'y', 7, true) on conflict (n, kind) where ok and kind = 'y' do update set email = 'new' returning id, email
insert into live (id, kind, n, ok) values (7, 'y', 7, true) on conflict (kind, n) where kind <> 'x' and ok do update set email = 'new' returning id, email
insert into live (id, kind, n, ok) values (7, 'y', 7, true) on conflict (kind, n) where ok do nothing
insert into live (id, email) values (7, 'n'), (8, 'n') on conflict (email) where gone is null do update set n = 1
insert into live (id, email) values (7, 'n'), (8, 'n') on conflict (email) where gone is null do nothing ;; select id from live where email = 'n'
insert into live (id, email) values (7, 'a') on conflict (email) where nocolumn is null do nothing
select id from live where n > 5 order by n desc, id
select id, kind from live where n > 6 and n < 9 order by id
select id from live where n = 7 order by id
select id from live where n in (6, 7, 10) order by id
select id from live where n in (1, 6) order by id
select id from live where n >= 5 order by n desc, id
select id from live where n > 5 or n is null order by id
select id from live where kind = 'z' and n is null
select id from live where kind = 'y' and n % 2 = 1 order by id
select id from live where kind = 'y' and n = 7 order by id
select id from live where kind = 'y' order by id
select id from live where ok and kind = 'y' and n = 7
select id from live where ok is true and kind = 'y'
select id from live where ok = true and kind <> 'x' order by id
select id from live where email is null and gone is null order by id
select id from live where email = 'b' order by id
select count(*) from live where email = 'b' and gone is null
select a.id, b.id from live a join live b on a.kind = b.kind where a.n > 5 and b.n <= 6 order by 1, 2
select max(n), min(n) from live where n > 5
update live set n = n - 5 where n > 5 ;; select id, n from live where n > 0 order by id
delete from live where n > 5 returning id ;; select count(*) from live
select id from live where n > 5 order by n desc, id limit 2 for update
with moved as (update live set gone = null where id = 4 returning id, email) select * from moved
insert into live select id + 10, email, kind, n, '2024-01-01', false from live ;; select count(*), count(distinct email) from live
insert into live select id + 10, email, kind, n, gone, false from live
truncate live ;; insert into live (id, email) values (1, 'a') ;; insert into live (id, email) values (2, 'a')
select pg_get_indexdef('live_email'::regclass)
select pg_get_indexdef('live_n'::regclass)
select pg_get_expr(indpred, indrelid) from pg_index where indexrelid = 'live_email'::regclass
select indexrelid::regclass::text, indpred is not null as partial, indisunique from pg_index where indrelid = 'live'::regclass order by 1
select conname from pg_constraint where conrelid = 'live'::regclass order by 1
create index on live (id) where now() > gone
create index on live (id) where random() > 0.5
create index on live (id) where current_user = email
create index on live (id) where gone::text = email
create index on live (id) where n
create index on live (id) where nocolumn
create index on live (id) where id in (select 1)
create index on live (id) where count(*) > 1
create index on live (id) where n = $1
create table child (e text references live (email))
alter table live add constraint one unique using index live_email
alter table live add foreign key (kind, n) references live (kind, n)
