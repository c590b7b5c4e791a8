-- INSERT, UPDATE, DELETE, MERGE, RETURNING, ON CONFLICT: each line is a block that is rolled back
insert into dept values (10, 'new', 5, 'Ulm') returning * ;; select * from dept where id = 10
insert into dept (name, id) values ('a', 11), ('b', 12) returning id, name, budget, upper(name) as u
insert into dept (id) values (13)
insert into dept values (1, 'dup')
insert into dept values (14, 'eng')
insert into dept values (15)
insert into dept values (16, 'x', 1, 'y', 5)
insert into dept (id, id) values (1, 2)
insert into dept (id, nope) values (1, 2)
insert into nowhere values (1)
insert into dept values ('x', 'y')
insert into dept values (17, 'too long site', 1, 'abcdefghijklmnop')
insert into dept values (18, 'spaces', 1, 'abcdefghijkl   ') returning site || '|'
insert into dept values (19, 'big', 12345678901)
insert into dept values (20, 'num', 1.005) returning budget
insert into dept values (default, 'x')
insert into emp (id, name, dept) values (50, 'Zoe', 99)
insert into emp (id, name, dept) values (51, 'Zoe', null) returning id, dept, active, tags
insert into emp (id, name, tags, info) values (52, 'T', array['x', null], '{"b": 1, "a": [1, 2]}') returning tags, info, info -> 'a'
insert into emp (id, name, hired) values (53, 'H', 'yesterday-ish')
insert into emp (id, name, hired) select 60 + id, name || '2', hired from emp where dept = 1 returning id, name
insert into emp (id, name) select id, name from emp
select setval('seq_id_seq', 20) ;; insert into seq (v) values ('x') returning id, v, at, n
select setval('seq_id_seq', 30, false) ;; insert into seq default values returning *
insert into seq (n) values (0)
insert into seq (n) values (-5), (5)
insert into seq (id, v) values (100, default) returning id, v
select setval('seq_id_seq', 40) ;; insert into seq (v) values ('a') ;; select currval('seq_id_seq'), lastval() ;; select nextval('seq_id_seq') ;; select setval('seq_id_seq', 50) ;; insert into seq (v) values ('b') returning id
select currval('nope_seq')
insert into item (sku, size) values ('z', 5)
insert into item (sku, stock) values ('z', 5) returning size, stock, price
insert into item (sku, stock) values ('z', null)
insert into item (sku, price) values ('z', 10.50)
insert into item (sku, price) values ('z', 10.5000)
insert into item (sku) values ('z'), ('y') returning sku
insert into dept values (1, 'x') on conflict do nothing
insert into dept values (1, 'x') on conflict (id) do nothing returning *
insert into dept values (1, 'x', 5) on conflict (id) do update set name = excluded.name, budget = dept.budget + excluded.budget returning *
insert into dept values (77, 'eng', 5) on conflict (name) do update set budget = excluded.budget returning id, budget
insert into dept values (77, 'eng', 5) on conflict (id) do nothing
insert into dept values (1, 'x', 5) on conflict (id) do update set budget = 1 where dept.budget > 1e9 returning id
insert into dept values (77, 'q', 5), (77, 'r', 6) on conflict (id) do update set budget = 1
insert into dept values (77, 'q', 5), (77, 'r', 6) on conflict (id) do nothing returning name
insert into dept values (1, 'x') on conflict on constraint dept_pkey do update set site = 'S' returning id, name, site
insert into dept values (1, 'x') on conflict on constraint nope do nothing
insert into dept values (1, 'x') on conflict (site) do nothing
insert into dept as d values (1, 'x') on conflict (id) do update set site = d.name || excluded.name returning site
insert into pair values (1, 2, 'n'), (9, 9, 'm') on conflict (a, b) do update set v = excluded.v || coalesce(pair.v, '?') returning *
insert into pair values (1, 2, 'n') on conflict (b, a) do nothing
insert into pair values (1, 2, 'n') on conflict (a) do nothing
insert into item (sku, stock) values ('a-1', 9) on conflict (sku) do update set stock = item.stock + excluded.stock, size = default returning stock, size
update emp set pay = pay * 1.1 where dept = 1 returning id, pay
update emp set pay = pay + 1, name = upper(name) where id = 2 returning *
update emp set (pay, active) = (1.5, not active) where id = 1 returning pay, active
update emp set (pay, active) = row(2.5, null) where id = 1 returning pay, active
update emp set (pay, name) = (select 7, 'Q') where id = 1 returning pay, name
update emp set pay = default, active = default where id in (3, 7) returning id, pay, active
update emp set id = 2 where id = 1
update emp set id = id + 100 where dept = 1 returning id
update pair set a = a + 1, b = b + 1 returning a, b
update dept set id = 5 where id = 4 returning *
update dept set id = 5 where id = 1
update emp set dept = 99 where id = 1
update emp set name = null where id = 1
update emp set pay = 123456789.5 where id = 1
update emp set nope = 1
update emp set pay = 1, pay = 2
update emp e set e.pay = 1
update emp set pay = 'x'
update emp set pay = true
update emp set tags = tags || 'z'::text where id < 3 returning tags
update emp set info = jsonb_set(info, '{age}', '1') where id = 1 returning info
update emp set tags[1] = 'q' where id = 1 returning tags
update seq set n = -1
update seq set n = n * 2 returning n
update item set stock = stock + 1 returning sku, size
update item set size = 3
update item set size = default where sku = 'a-1' returning size
update emp e set pay = d.budget / 100 from dept d where d.id = e.dept returning e.id, e.pay, d.name
update emp set name = x.n from (values (1, 'one'), (2, 'two')) x(i, n) where id = x.i returning id, name, x.n
update emp set pay = (select sum(amount) from sale where emp = emp.id) returning id, pay
update emp e set boss = null from emp b where e.boss = b.id and b.name = 'Ada' returning e.id, b.id
update emp set pay = 1 from dept where nope = 1
update emp set pay = 0 where false returning *
update emp set pay = count(*)
update staff set pay = 1
with x as (select id from emp where dept = 2) update emp set pay = 3 from x where emp.id = x.id returning emp.id
update emp set pay = 1 where id = 1 returning pay * 2 as twice, (select count(*) from dept)
delete from pair where a = 1 returning *
delete from emp where id = 7 returning name
delete from dept where id = 4 returning *
delete from dept where id = 1
delete from dept
delete from emp e using dept d where d.id = e.dept and d.name = 'hr' returning e.name, d.name
delete from emp where id in (select emp from sale where qty = 5) returning id
delete from sale where at < (select avg(extract(epoch from at)) from sale)
delete from sale s where exists (select 1 from emp e where e.id = s.emp and e.active is null) returning id
delete from emp where nope = 1
delete from emp returning nope
delete from staff
with gone as (delete from pair where a = 2 returning *) select count(*), min(b) from gone
with up as (update emp set pay = 1 where dept = 1 returning id, pay) select sum(pay) from up ;; select sum(pay) from emp where dept = 1
with ins as (insert into dept values (70, 'w') returning id) insert into emp (id, name, dept) select 70, 'ww', id from ins returning *
with ins as (insert into dept values (70, 'w') returning id) select (select count(*) from dept), (select count(*) from ins)
with moved as (delete from pair where a = 1 returning *) insert into num (id, i4) select b + 100, a from moved returning id, i4 ;; select count(*) from pair
with up as (update emp set pay = pay + 1 where dept = 1 returning id, pay) select u.id, u.pay, s.amount from up u join sale s on s.emp = u.id where s.qty = 5 order by 1, 3
with gone as (delete from sale where emp = 8 returning id), named as (select id * 10 as id from gone) insert into num (id, i8) select 500 + row_number() over (order by id), id from named returning i8
with none as (delete from pair where a = 99 returning b, v) select count(*), max(b), min(v) from none
with quiet as (delete from pair where a = 1) select count(*) from dept ;; select count(*) from pair
with ins as (insert into dept values (1, 'dup') returning id) select * from ins
with up as (update dept set budget = 1 returning id) update emp set pay = 0 from up where up.id = emp.dept returning emp.id
with a as (delete from pair where a = 3 returning b), c as (insert into pair select 30, b, 'moved' from a returning *) select * from c order by b
merge into dept d using (values (1, 'E'), (50, 'N')) s(id, name) on d.id = s.id when matched then update set name = s.name when not matched then insert (id, name) values (s.id, s.name) ;; select id, name from dept order by id
merge into dept d using emp e on e.dept = d.id and e.boss is null when matched then update set site = e.name ;; select id, site from dept order by id
merge into pair p using (select 1 as a, 2 as b) s on p.a = s.a and p.b = s.b when matched and p.v is not null then delete when not matched then do nothing ;; select count(*) from pair
merge into item i using (values ('a-1', 5), ('n-1', 6)) s(sku, q) on i.sku = s.sku when matched and i.stock + s.q > 100 then delete when matched then update set stock = i.stock + s.q when not matched then insert (sku, stock) values (s.sku, s.q) ;; select sku, stock, size from item order by sku
merge into dept d using emp e on e.dept = d.id when matched then update set site = e.name
merge into dept d using (values (1)) s(id) on d.id = s.id when matched then insert values (1)
merge into dept d using (values (90)) s(id) on d.id = s.id when not matched then insert (id) values (s.id)
merge into dept d using (values (90)) s(id) on d.id = s.id when not matched and s.id > 100 then insert (id, name) values (s.id, 'x') ;; select count(*) from dept
merge into staff using dept on true when matched then delete
truncate dept
begin ;; select 1
savepoint a ;; delete from pair where a = 1 ;; rollback to a ;; select count(*) from pair ;; release a ;; release a
savepoint a ;; insert into dept values (1, 'x') ;; rollback to a ;; insert into dept values (31, 'x') returning id
insert into dept values (1, 'x') ;; select 1
insert into dept values (32, 'y') ;; savepoint s ;; insert into dept values (33, 'z') ;; rollback to s ;; select id from dept where id > 30 order by id
rollback to nope
insert into emp (id, name) values (80, 'a') ;; update emp set name = 'b' where id = 80 ;; delete from emp where id = 80 returning name ;; select count(*) from emp where id = 80
delete from pair where a = 1 and b = 2 ;; insert into pair values (1, 2, 'again') returning * ;; insert into pair values (1, 2, 'twice')
update emp set pay = 1 where name = 'Ada' ;; select pay from staff where name = 'Ada' ;; select count(*) from emp e join dept d on d.id = e.dept where e.pay = 1
declare c cursor for select id from emp order by id ;; fetch 2 from c ;; fetch next c ;; fetch forward 2 from c ;; fetch all from c ;; fetch c ;; close c ;; fetch c
declare c cursor for select id from emp order by id ;; move 3 in c ;; fetch 1 from c ;; move all in c ;; fetch c
declare c scroll cursor for select id from emp order by id ;; fetch last c ;; fetch prior c ;; fetch first c ;; fetch absolute 3 c ;; fetch relative -1 c ;; fetch backward 1 from c ;; fetch backward all in c
declare c no scroll cursor for select id from emp order by id ;; fetch 2 from c ;; fetch backward 1 from c
declare c cursor for select id from emp ;; declare c cursor for select 1
declare c cursor for select e.id, d.name from emp e join dept d on d.id = e.dept order by 1 ;; fetch 2 c ;; fetch 10 c
declare c cursor with hold for select id from dept order by id ;; fetch 1 c ;; close all ;; fetch c
declare c cursor for insert into dept values (1)
declare c cursor for values (1), (2), (3) ;; fetch absolute 2 c ;; fetch 0 c ;; fetch absolute -1 c
declare c cursor for select id from emp where id = 1 for update ;; fetch c ;; update emp set pay = 5 where current of c returning id
close nope
prepare p as select $1::int + 1 ;; execute p(4) ;; execute p('5') ;; execute p ;; select 1
prepare p (int, text) as select id, $2 || name from emp where id = $1 ;; execute p(1, 'x-') ;; deallocate p ;; execute p(1, 'y')
prepare p as select 1 ;; prepare p as select 2
prepare p as insert into dept values ($1, $2) returning id ;; execute p(60, 'sixty') ;; execute p(1, 'one')
execute nope
deallocate nope
set transaction read only ;; insert into dept values (61, 'x')
set transaction isolation level serializable ;; show transaction_isolation ;; show transaction_read_only
show nonsense.thing
show no_such_setting
set no_such_setting = 1
set work_mem = '64MB' ;; show work_mem
set statement_timeout = '5s' ;; show statement_timeout ;; set statement_timeout = 'abc'
set search_path = public ;; show search_path ;; select current_schema()
set search_path = nowhere, public ;; select count(*) from dept
set application_name = 'cmp' ;; select current_setting('application_name') ;; reset application_name
select set_config('my.var', 'v', false), current_setting('my.var') ;; show my.var
select current_setting('my.other')
select current_setting('my.other', true)
set extra_float_digits = 0 ;; select 0.1::float8 + 0.2::float8, 1::float4 / 3
set bytea_output = 'escape' ;; select '\x00ff41'::bytea
set standard_conforming_strings = off ;; select 1
set client_min_messages = warning ;; show client_min_messages
set lc_messages = 'C' ;; set default_transaction_isolation = 'serializable' ;; show default_transaction_isolation
lock table dept in share mode ;; select 1
explain nonsense
select * from dept where id = 1; select 2
call nope()
listen x
do $$ begin end $$
insert into seq select returning v, n ;; insert into seq select from dept where id < 3 returning v ;; insert into seq (id) select
with d as (delete from pair where a = 1 returning *) insert into pair select a, b, v || '!' from d ;; select * from pair where a = 1 order by b
with d as (delete from pair where a < 3 returning *), s as (select * from d where b > 2) insert into pair select a + 10, b, v from s returning a, b ;; select count(*), sum(a) from pair
with d as (delete from pair where a = 2 returning *), i as (insert into pair select a, b, 'again' from d returning *) select count(*), min(v) from i ;; select count(*), min(v) from pair where a = 2
with u as (update pair set v = 'x' where a = 1 and b = 2 returning *) insert into pair select a + 100, b, v from u returning * ;; select * from pair where a in (1, 101) order by a, b
with u as (update pair set v = 'x' where a = 1 and b = 2 returning *) insert into pair select a, b, v from u
insert into dept (id, name) values (generate_series(70, 72), 'n' || generate_series(1, 3)) ;; select id, name from dept where id >= 70 order by id
insert into dept values (generate_series(70, 72), 'n' || generate_series(1, 2), 5) returning id, name, budget
insert into seq values (default, unnest(array['a', 'b', null]), default, 3) returning v, at, n
insert into seq (v, n) values (generate_series(1, 3)::text, default) returning v, at, n
insert into seq (v, n) values ('x', generate_series(-1, 1))
insert into dept (id, name) values (generate_series(1, 3), 'n') on conflict (id) do update set name = excluded.name || dept.name returning id, name
insert into dept (id, name) values (generate_series(1, 0), 'n') returning id
insert into dept (id, name) values (generate_series(70, 71), (select name from dept where id = 1) || generate_series(1, 2)) returning id, name
insert into dept (id, name) values (unnest(array[80, 81]), name)
with a as (insert into dept (id, name) values (generate_series(70, 72), generate_series(1, 3)::text) returning id) select count(*), sum(id) from a
