update o set n = c.id::int4 * 10 from c where o.cid = c.id and c.name = 'ann'
update o set n = n + 1, amount = (select max(credit) from c where c.id = o.cid) where id < 9
update c set credit = x.total from (select cid, sum(amount) as total from o group by cid) x where x.cid = c.id
update c set credit = 1 where id in (select cid from o where n > 7) returning id, credit
update c set name = c.name || e.name from e where e.id = c.id returning c.id, c.name, e.name
update c set ok = exists (select 1 from k where k.a = c.id)
update e set pay = e.pay + b.pay from e b where b.id = e.boss
update k set b = b || c.name from c where c.id = k.a and k.a = 1 returning *
with x as (select id from c where city = 'Bern') update c set credit = 99 from x where x.id = c.id
update c set (name, city) = (select e.name, 'Z' from e where e.id = c.id) where id < 3
delete from o using c where o.cid = c.id and c.city = 'Bern'
delete from o where cid in (select id from c where ok)
delete from o where not exists (select 1 from c where c.id = o.cid)
delete from e where pay < (select avg(pay) from e) returning name, pay
delete from k using c, o where k.a = c.id and o.cid = c.id and o.n = 9 returning k.a, k.b
with x as (select id from c where city = 'Bern') delete from c using x where x.id = c.id returning c.name
delete from o where id = (select max(id) from o)
insert into k select id, name, length(name) from c where id > 2
insert into e (id, name, pay) select cid + 100, 'sum', sum(amount) from o where cid is not null group by cid returning id, name, pay
insert into k select a + 10, b, v from k returning a
with x as (select id, name from c) insert into e (id, name) select id + 200, name from x
insert into k select a, b, v from k on conflict (a, b) do update set v = excluded.v * 2
insert into e select * from e
update c set id = (select max(id) from c)
merge into k using (select id::int4 as id, name from c) s on k.a = s.id and k.b = s.name when matched then update set v = 1 when not matched then insert (a, b, v) values (s.id, s.name, 77)
merge into k using c on k.a = c.id when matched and k.v is null then delete when matched then update set v = k.v + c.id when not matched then insert values (c.id, c.name, 0)
merge into e using (values (1, 'x'), (99, 'y')) s(id, n) on e.id = s.id when matched then do nothing when not matched then insert (id, name) values (s.id, s.n)
merge into c using o on o.cid = c.id when matched then update set credit = o.amount
merge into c using (select cid, sum(n) as t from o group by cid) s on s.cid = c.id when matched and s.t > (select avg(n) from o) then update set credit = s.t when matched then delete
update o set cid = null where cid in (select id from c where city is null) returning id
