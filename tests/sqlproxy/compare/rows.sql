-- subqueries where one row is written: places × forms, correlated and not; each line is a block that is rolled back
insert into pair values (7, 1, ((select max(k) from src))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((select max(k) from src))::text), (7, 3, ((select max(k) from src))::text) returning b, v, (select max(k) from src) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((select max(k) from src))::text returning name, (select max(k) from src) as r
update dept set site = left(((select max(k) from src))::text, 9) where id = 2 returning site, (select max(k) from src) as r
delete from seq where id = 1 returning (select max(k) from src) as r
insert into pair values (7, 1, (exists (select 1 from src where v = 30))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (exists (select 1 from src where v = 30))::text), (7, 3, (exists (select 1 from src where v = 30))::text) returning b, v, exists (select 1 from src where v = 30) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (exists (select 1 from src where v = 30))::text returning name, exists (select 1 from src where v = 30) as r
update dept set site = left((exists (select 1 from src where v = 30))::text, 9) where id = 2 returning site, exists (select 1 from src where v = 30) as r
delete from seq where id = 1 returning exists (select 1 from src where v = 30) as r
insert into pair values (7, 1, (not exists (select from src where k > 99))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (not exists (select from src where k > 99))::text), (7, 3, (not exists (select from src where k > 99))::text) returning b, v, not exists (select from src where k > 99) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (not exists (select from src where k > 99))::text returning name, not exists (select from src where k > 99) as r
update dept set site = left((not exists (select from src where k > 99))::text, 9) where id = 2 returning site, not exists (select from src where k > 99) as r
delete from seq where id = 1 returning not exists (select from src where k > 99) as r
insert into pair values (7, 1, (3 in (select k from src))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (3 in (select k from src))::text), (7, 3, (3 in (select k from src))::text) returning b, v, 3 in (select k from src) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (3 in (select k from src))::text returning name, 3 in (select k from src) as r
update dept set site = left((3 in (select k from src))::text, 9) where id = 2 returning site, 3 in (select k from src) as r
delete from seq where id = 1 returning 3 in (select k from src) as r
insert into pair values (7, 1, (99 not in (select v from src))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (99 not in (select v from src))::text), (7, 3, (99 not in (select v from src))::text) returning b, v, 99 not in (select v from src) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (99 not in (select v from src))::text returning name, 99 not in (select v from src) as r
update dept set site = left((99 not in (select v from src))::text, 9) where id = 2 returning site, 99 not in (select v from src) as r
delete from seq where id = 1 returning 99 not in (select v from src) as r
insert into pair values (7, 1, (7 < any (select v from src))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (7 < any (select v from src))::text), (7, 3, (7 < any (select v from src))::text) returning b, v, 7 < any (select v from src) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (7 < any (select v from src))::text returning name, 7 < any (select v from src) as r
update dept set site = left((7 < any (select v from src))::text, 9) where id = 2 returning site, 7 < any (select v from src) as r
delete from seq where id = 1 returning 7 < any (select v from src) as r
insert into pair values (7, 1, (9 < all (select v from src where v is not null))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (9 < all (select v from src where v is not null))::text), (7, 3, (9 < all (select v from src where v is not null))::text) returning b, v, 9 < all (select v from src where v is not null) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (9 < all (select v from src where v is not null))::text returning name, 9 < all (select v from src where v is not null) as r
update dept set site = left((9 < all (select v from src where v is not null))::text, 9) where id = 2 returning site, 9 < all (select v from src where v is not null) as r
delete from seq where id = 1 returning 9 < all (select v from src where v is not null) as r
insert into pair values (7, 1, (array(select k from src order by k))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (array(select k from src order by k))::text), (7, 3, (array(select k from src order by k))::text) returning b, v, array(select k from src order by k) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (array(select k from src order by k))::text returning name, array(select k from src order by k) as r
update dept set site = left((array(select k from src order by k))::text, 9) where id = 2 returning site, array(select k from src order by k) as r
delete from seq where id = 1 returning array(select k from src order by k) as r
insert into pair values (7, 1, ((1, 30) = (select k, v from src where k = 1))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((1, 30) = (select k, v from src where k = 1))::text), (7, 3, ((1, 30) = (select k, v from src where k = 1))::text) returning b, v, (1, 30) = (select k, v from src where k = 1) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((1, 30) = (select k, v from src where k = 1))::text returning name, (1, 30) = (select k, v from src where k = 1) as r
update dept set site = left(((1, 30) = (select k, v from src where k = 1))::text, 9) where id = 2 returning site, (1, 30) = (select k, v from src where k = 1) as r
delete from seq where id = 1 returning (1, 30) = (select k, v from src where k = 1) as r
insert into pair values (7, 1, ((2, 10) in (select k, v from src))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((2, 10) in (select k, v from src))::text), (7, 3, ((2, 10) in (select k, v from src))::text) returning b, v, (2, 10) in (select k, v from src) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((2, 10) in (select k, v from src))::text returning name, (2, 10) in (select k, v from src) as r
update dept set site = left(((2, 10) in (select k, v from src))::text, 9) where id = 2 returning site, (2, 10) in (select k, v from src) as r
delete from seq where id = 1 returning (2, 10) in (select k, v from src) as r
insert into pair values (7, 1, ((select v from src where k = 99))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((select v from src where k = 99))::text), (7, 3, ((select v from src where k = 99))::text) returning b, v, (select v from src where k = 99) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((select v from src where k = 99))::text returning name, (select v from src where k = 99) as r
update dept set site = left(((select v from src where k = 99))::text, 9) where id = 2 returning site, (select v from src where k = 99) as r
delete from seq where id = 1 returning (select v from src where k = 99) as r
insert into pair values (7, 1, ((select count(*) from src where v > (select avg(v) from src)))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((select count(*) from src where v > (select avg(v) from src)))::text), (7, 3, ((select count(*) from src where v > (select avg(v) from src)))::text) returning b, v, (select count(*) from src where v > (select avg(v) from src)) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((select count(*) from src where v > (select avg(v) from src)))::text returning name, (select count(*) from src where v > (select avg(v) from src)) as r
update dept set site = left(((select count(*) from src where v > (select avg(v) from src)))::text, 9) where id = 2 returning site, (select count(*) from src where v > (select avg(v) from src)) as r
delete from seq where id = 1 returning (select count(*) from src where v > (select avg(v) from src)) as r
insert into pair values (7, 1, ((select k from src where k = 1 union select 1))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((select k from src where k = 1 union select 1))::text), (7, 3, ((select k from src where k = 1 union select 1))::text) returning b, v, (select k from src where k = 1 union select 1) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((select k from src where k = 1 union select 1))::text returning name, (select k from src where k = 1 union select 1) as r
update dept set site = left(((select k from src where k = 1 union select 1))::text, 9) where id = 2 returning site, (select k from src where k = 1 union select 1) as r
delete from seq where id = 1 returning (select k from src where k = 1 union select 1) as r
insert into pair values (7, 1, ((with w as (select k from src) select sum(k) from w))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((with w as (select k from src) select sum(k) from w))::text), (7, 3, ((with w as (select k from src) select sum(k) from w))::text) returning b, v, (with w as (select k from src) select sum(k) from w) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((with w as (select k from src) select sum(k) from w))::text returning name, (with w as (select k from src) select sum(k) from w) as r
update dept set site = left(((with w as (select k from src) select sum(k) from w))::text, 9) where id = 2 returning site, (with w as (select k from src) select sum(k) from w) as r
delete from seq where id = 1 returning (with w as (select k from src) select sum(k) from w) as r
insert into pair values (7, 1, (case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end)::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end)::text), (7, 3, (case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end)::text) returning b, v, case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end)::text returning name, case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end as r
delete from seq where id = 1 returning case when exists (select 1 from src where k = 99) then (select 1 / (k - 1) from src where k = 1) else (select min(v) from src) end as r
insert into pair values (7, 1, (coalesce((select v from src where k = 3), (select v from src where k = 2)))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, (coalesce((select v from src where k = 3), (select v from src where k = 2)))::text), (7, 3, (coalesce((select v from src where k = 3), (select v from src where k = 2)))::text) returning b, v, coalesce((select v from src where k = 3), (select v from src where k = 2)) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = (coalesce((select v from src where k = 3), (select v from src where k = 2)))::text returning name, coalesce((select v from src where k = 3), (select v from src where k = 2)) as r
update dept set site = left((coalesce((select v from src where k = 3), (select v from src where k = 2)))::text, 9) where id = 2 returning site, coalesce((select v from src where k = 3), (select v from src where k = 2)) as r
delete from seq where id = 1 returning coalesce((select v from src where k = 3), (select v from src where k = 2)) as r
insert into pair values (7, 1, ((select k from src order by v desc nulls last, k limit 1))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((select k from src order by v desc nulls last, k limit 1))::text), (7, 3, ((select k from src order by v desc nulls last, k limit 1))::text) returning b, v, (select k from src order by v desc nulls last, k limit 1) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((select k from src order by v desc nulls last, k limit 1))::text returning name, (select k from src order by v desc nulls last, k limit 1) as r
update dept set site = left(((select k from src order by v desc nulls last, k limit 1))::text, 9) where id = 2 returning site, (select k from src order by v desc nulls last, k limit 1) as r
delete from seq where id = 1 returning (select k from src order by v desc nulls last, k limit 1) as r
insert into pair values (7, 1, ((select k from src))::text) returning v
insert into pair values (7, 1, 'a'), (7, 2, ((select k from src))::text), (7, 3, ((select k from src))::text) returning b, v, (select k from src) as r
insert into dept (id, name) values (1, 'dup') on conflict (id) do update set name = ((select k from src))::text returning name, (select k from src) as r
update dept set site = left(((select k from src))::text, 9) where id = 2 returning site, (select k from src) as r
delete from seq where id = 1 returning (select k from src) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (select v from src where k = dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (select v from src where k = dept.id) as r
update dept set budget = id where id > 1 returning id, (select v from src where k = dept.id) as r
update dept set site = left(((select v from src where k = dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (select v from src where k = dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((select v from src where k = dept.id))::text, 9) returning id, site, (select v from src where k = dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, exists (select 1 from src where k = dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, exists (select 1 from src where k = dept.id) as r
update dept set budget = id where id > 1 returning id, exists (select 1 from src where k = dept.id) as r
update dept set site = left((exists (select 1 from src where k = dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, exists (select 1 from src where k = dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((exists (select 1 from src where k = dept.id))::text, 9) returning id, site, exists (select 1 from src where k = dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, dept.id in (select k from src) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, dept.id in (select k from src) as r
update dept set budget = id where id > 1 returning id, dept.id in (select k from src) as r
update dept set site = left((dept.id in (select k from src))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, dept.id in (select k from src) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((dept.id in (select k from src))::text, 9) returning id, site, dept.id in (select k from src) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, dept.id in (select k from src where k < dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, dept.id in (select k from src where k < dept.id) as r
update dept set budget = id where id > 1 returning id, dept.id in (select k from src where k < dept.id) as r
update dept set site = left((dept.id in (select k from src where k < dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, dept.id in (select k from src where k < dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((dept.id in (select k from src where k < dept.id))::text, 9) returning id, site, dept.id in (select k from src where k < dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, dept.id > any (select k from src) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, dept.id > any (select k from src) as r
update dept set budget = id where id > 1 returning id, dept.id > any (select k from src) as r
update dept set site = left((dept.id > any (select k from src))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, dept.id > any (select k from src) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((dept.id > any (select k from src))::text, 9) returning id, site, dept.id > any (select k from src) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, dept.id >= all (select k from src where k <= dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, dept.id >= all (select k from src where k <= dept.id) as r
update dept set budget = id where id > 1 returning id, dept.id >= all (select k from src where k <= dept.id) as r
update dept set site = left((dept.id >= all (select k from src where k <= dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, dept.id >= all (select k from src where k <= dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((dept.id >= all (select k from src where k <= dept.id))::text, 9) returning id, site, dept.id >= all (select k from src where k <= dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, array(select k from src where k <= dept.id order by k) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, array(select k from src where k <= dept.id order by k) as r
update dept set budget = id where id > 1 returning id, array(select k from src where k <= dept.id order by k) as r
update dept set site = left((array(select k from src where k <= dept.id order by k))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, array(select k from src where k <= dept.id order by k) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((array(select k from src where k <= dept.id order by k))::text, 9) returning id, site, array(select k from src where k <= dept.id order by k) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (select sum(k + dept.id) from src where k < dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (select sum(k + dept.id) from src where k < dept.id) as r
update dept set budget = id where id > 1 returning id, (select sum(k + dept.id) from src where k < dept.id) as r
update dept set site = left(((select sum(k + dept.id) from src where k < dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (select sum(k + dept.id) from src where k < dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((select sum(k + dept.id) from src where k < dept.id))::text, 9) returning id, site, (select sum(k + dept.id) from src where k < dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (select count(*) from dept x where x.id < dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (select count(*) from dept x where x.id < dept.id) as r
update dept set budget = id where id > 1 returning id, (select count(*) from dept x where x.id < dept.id) as r
update dept set site = left(((select count(*) from dept x where x.id < dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (select count(*) from dept x where x.id < dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((select count(*) from dept x where x.id < dept.id))::text, 9) returning id, site, (select count(*) from dept x where x.id < dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, exists (select 1 from dept x where x.id = dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, exists (select 1 from dept x where x.id = dept.id) as r
update dept set budget = id where id > 1 returning id, exists (select 1 from dept x where x.id = dept.id) as r
update dept set site = left((exists (select 1 from dept x where x.id = dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, exists (select 1 from dept x where x.id = dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((exists (select 1 from dept x where x.id = dept.id))::text, 9) returning id, site, exists (select 1 from dept x where x.id = dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)) as r
update dept set budget = id where id > 1 returning id, (select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)) as r
update dept set site = left(((select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)))::text, 9) returning id, site, (select max(k) from src where k < (select count(*) from src s where s.k <= dept.id)) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (dept.id, 30) in (select k, v from src) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (dept.id, 30) in (select k, v from src) as r
update dept set budget = id where id > 1 returning id, (dept.id, 30) in (select k, v from src) as r
update dept set site = left(((dept.id, 30) in (select k, v from src))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (dept.id, 30) in (select k, v from src) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((dept.id, 30) in (select k, v from src))::text, 9) returning id, site, (dept.id, 30) in (select k, v from src) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (select y.z from (select dept.id * 2 as z) y) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (select y.z from (select dept.id * 2 as z) y) as r
update dept set budget = id where id > 1 returning id, (select y.z from (select dept.id * 2 as z) y) as r
update dept set site = left(((select y.z from (select dept.id * 2 as z) y))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (select y.z from (select dept.id * 2 as z) y) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((select y.z from (select dept.id * 2 as z) y))::text, 9) returning id, site, (select y.z from (select dept.id * 2 as z) y) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, (select dept.id union select dept.id) as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, (select dept.id union select dept.id) as r
update dept set budget = id where id > 1 returning id, (select dept.id union select dept.id) as r
update dept set site = left(((select dept.id union select dept.id))::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, (select dept.id union select dept.id) as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left(((select dept.id union select dept.id))::text, 9) returning id, site, (select dept.id union select dept.id) as r
insert into dept (id, name) values (5, 'five'), (50, 'fifty') returning id, case when dept.id > 2 then (select t from src where k = dept.id limit 1) end as r
insert into dept (id, name) select k + 3, 'n' || k from src where k > 1 returning id, case when dept.id > 2 then (select t from src where k = dept.id limit 1) end as r
update dept set budget = id where id > 1 returning id, case when dept.id > 2 then (select t from src where k = dept.id limit 1) end as r
update dept set site = left((case when dept.id > 2 then (select t from src where k = dept.id limit 1) end)::text, 9) where id < 4 returning id, site
delete from dept where id = 4 returning id, case when dept.id > 2 then (select t from src where k = dept.id limit 1) end as r
insert into dept (id, name) values (1, 'x'), (2, 'y') on conflict (id) do update set site = left((case when dept.id > 2 then (select t from src where k = dept.id limit 1) end)::text, 9) returning id, site, case when dept.id > 2 then (select t from src where k = dept.id limit 1) end as r
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((select v from src where k = excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((exists (select 1 from src where k = excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where exists (select 1 from src where k = excluded.id) returning id, site
update dept set site = 'w' where exists (select 1 from src where k = dept.id) returning id, site
delete from dept where id > 3 and exists (select 1 from src where k = dept.id) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((excluded.id in (select k from src))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where excluded.id in (select k from src) returning id, site
update dept set site = 'w' where dept.id in (select k from src) returning id, site
delete from dept where id > 3 and dept.id in (select k from src) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((excluded.id in (select k from src where k < excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where excluded.id in (select k from src where k < excluded.id) returning id, site
update dept set site = 'w' where dept.id in (select k from src where k < dept.id) returning id, site
delete from dept where id > 3 and dept.id in (select k from src where k < dept.id) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((excluded.id > any (select k from src))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where excluded.id > any (select k from src) returning id, site
update dept set site = 'w' where dept.id > any (select k from src) returning id, site
delete from dept where id > 3 and dept.id > any (select k from src) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((excluded.id >= all (select k from src where k <= excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where excluded.id >= all (select k from src where k <= excluded.id) returning id, site
update dept set site = 'w' where dept.id >= all (select k from src where k <= dept.id) returning id, site
delete from dept where id > 3 and dept.id >= all (select k from src where k <= dept.id) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((array(select k from src where k <= excluded.id order by k))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((select sum(k + excluded.id) from src where k < excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((select count(*) from dept x where x.id < excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((exists (select 1 from dept x where x.id = excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where exists (select 1 from dept x where x.id = excluded.id) returning id, site
update dept set site = 'w' where exists (select 1 from dept x where x.id = dept.id) returning id, site
delete from dept where id > 3 and exists (select 1 from dept x where x.id = dept.id) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((select max(k) from src where k < (select count(*) from src s where s.k <= excluded.id)))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((excluded.id, 30) in (select k, v from src))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = 'w' where (excluded.id, 30) in (select k, v from src) returning id, site
update dept set site = 'w' where (dept.id, 30) in (select k, v from src) returning id, site
delete from dept where id > 3 and (dept.id, 30) in (select k, v from src) returning id
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((select y.z from (select excluded.id * 2 as z) y))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left(((select excluded.id union select excluded.id))::text, 9) returning id, site
insert into dept (id, name) values (1, 'x'), (2, 'y'), (60, 'z') on conflict (id) do update set site = left((case when excluded.id > 2 then (select t from src where k = excluded.id limit 1) end)::text, 9) returning id, site
insert into src values (6, (select count(*) from src)) ;; insert into src values (7, (select count(*) from src)), (8, (select count(*) from src)) returning *, (select count(*) from src) ;; select count(*) from src
insert into src values (6, 1) ;; savepoint a ;; insert into src values (7, (select count(*) from src)) returning v ;; rollback to a ;; insert into src values (8, (select count(*) from src)) returning v, (select max(k) from src)
insert into src values (6, 1), (1, 2) on conflict (k) do update set v = (select count(*) from src) returning *, (select count(*) from src) as n
insert into src values (1, 2), (6, 3) on conflict (k) do update set (v, t) = (select max(k), min(t) || excluded.v from src where k <> excluded.k) returning *
insert into src values (1, 2) on conflict (k) do nothing returning (select 1)
delete from src where v = (select max(v) from src) returning k, (select max(v) from src) as m ;; select max(v) from src
update src set v = (select max(v) from src) + k where k in (select k from src where t = 'x') returning k, v, (select max(v) from src) as m ;; select max(v) from src
update src set (v, t) = (select s.k, s.t from src s where s.k = src.k + 1) where k < 3 returning *, (select t from src s where s.k = src.k) as old
update src set v = d.id from dept d where d.id = src.k and exists (select 1 from emp e where e.dept = d.id) returning src.k, d.name, (select count(*) from emp e where e.dept = d.id) as n
with w as (select max(k) as m from src) insert into src values ((select m + 1 from w), 0) returning k, (select m from w) as m
with w as (select max(k) as m from src) insert into src select m + 1, 2 from w returning k, (select m from w) as m, k in (select m + 1 from w) as i
with w as (select max(k) as m from src) insert into src values (1, 0) on conflict (k) do update set v = (select m from w) where src.k < (select m from w) returning v
with d as (delete from pair where a = 1 returning b) insert into src values (9, (select sum(b) from d)) returning v, (select count(*) from d) as n
insert into drawn (a) values ((select nextval('lots') from src where k = 1)), ((select k from src where k = 2)) returning a is not null as a, (select max(v) from src) as m
insert into src values ((select k from src), 1)
insert into src values ((select k, v from src), 1)
insert into src values (6, (select v from nowhere))
insert into src values (6, (select x from src))
insert into src values (6, (select 'x'))
insert into src (k, t) values (6, (select 5)) returning t
insert into src (k, v) values (6, (select '5'))
insert into src (k, v) values (6, (select 5.5)) returning v
insert into src (k, v) values (6, (select 99999999999))
insert into item (sku, stock, attrs, dims) values ('z', (select count(*) from src), (select jsonb_agg(k order by k) from src), array(select k from src order by k)) returning *, (select sum(d) from unnest(item.dims) d) as s
insert into emp (id, name, hired, tags, info) values (70, 'q', (select hired from emp where id = 1), (select tags from emp where id = 1), (select info from emp where id = 1)) returning *, (select e.id from emp e where e.hired = emp.hired and e.id <> emp.id) as same, (select e.id from emp e where e.info = emp.info and e.id <> emp.id) as i, (select e.id from emp e where e.tags = emp.tags and e.id <> emp.id) as t
insert into num (id, f8, n, i8) values (9, (select f8 from num where id = 8), (select n from num where id = 8), (select i8 from num where id = 2)) returning *, (select count(*) from num x where x.f8 = num.f8) as c, (select count(*) from num x where x.n = num.n) as d
insert into felt (id, m) values (9, (select m from felt where id = 1)), (10, (select max(m) from felt)) returning *, (select count(*) from felt f where f.m = felt.m) as n
prepare p (int, text) as insert into src values ($1, (select max(k) + $1 from src where t = $2)) returning v, (select $2 || t from src s where s.k = src.k - 5) as r ;; execute p(6, 'x') ;; execute p(7, 'nobody') ;; execute p(8, 'y')
prepare p (int) as update src set v = 1 where k = $1 returning (select k + $1 from src s where s.k = src.k) as r ;; execute p(1) ;; execute p(2)
insert into seq (n) values ((select 0))
insert into pair values (1, (select 2), 'dup')
insert into pair values (1, (select 2), 'dup') on conflict (a, b) do update set v = pair.v || (select '!') || excluded.v returning *
merge into dept using src on dept.id = src.k when matched then update set budget = (select count(*) from dept) when not matched then insert (id, name) values (src.k, (select 'n' || max(id) from dept)) ;; select id, name, budget from dept order by id
values ((select max(k) from src)), (1)
select k from src order by k limit (select 2) offset (select 1)
select k from src order by k limit (select count(*) from dept) - 2
select * from generate_series(1, (select max(k) from src)) g order by g
-- rows, literals and parameters beside a subquery
select (1, 30) = any (select k, v from src), (1, 30) = all (select k, v from src), (1, null) = any (select k, v from src), (1, null) = all (select k, v from src), (null, 30) = any (select k, v from src), (null, 30) = all (select k, v from src), (2, 10) = any (select k, v from src), (2, 10) = all (select k, v from src), (9, 9) = any (select k, v from src), (9, 9) = all (select k, v from src), (null, null) = any (select k, v from src), (null, null) = all (select k, v from src)
select (1, 30) = any (select k, v from src where k = 1), (1, 30) = all (select k, v from src where k = 1), (1, null) = any (select k, v from src where k = 1), (1, null) = all (select k, v from src where k = 1), (null, 30) = any (select k, v from src where k = 1), (null, 30) = all (select k, v from src where k = 1), (2, 10) = any (select k, v from src where k = 1), (2, 10) = all (select k, v from src where k = 1), (9, 9) = any (select k, v from src where k = 1), (9, 9) = all (select k, v from src where k = 1), (null, null) = any (select k, v from src where k = 1), (null, null) = all (select k, v from src where k = 1)
select (1, 30) = any (select k, v from src where false), (1, 30) = all (select k, v from src where false), (1, null) = any (select k, v from src where false), (1, null) = all (select k, v from src where false), (null, 30) = any (select k, v from src where false), (null, 30) = all (select k, v from src where false), (2, 10) = any (select k, v from src where false), (2, 10) = all (select k, v from src where false), (9, 9) = any (select k, v from src where false), (9, 9) = all (select k, v from src where false), (null, null) = any (select k, v from src where false), (null, null) = all (select k, v from src where false)
select (1, 30) = any (select null::int, 30), (1, 30) = all (select null::int, 30), (1, null) = any (select null::int, 30), (1, null) = all (select null::int, 30), (null, 30) = any (select null::int, 30), (null, 30) = all (select null::int, 30), (2, 10) = any (select null::int, 30), (2, 10) = all (select null::int, 30), (9, 9) = any (select null::int, 30), (9, 9) = all (select null::int, 30), (null, null) = any (select null::int, 30), (null, null) = all (select null::int, 30)
select (1, 30) = (select k, v from src where k = 1), (1, 30) = (select k, v from src where k = 3), (1, 30) = (select k, v from src where k = 99), (1, null) = (select k, v from src where k = 1), (1, null) = (select k, v from src where k = 3), (1, null) = (select k, v from src where k = 99), (null, 30) = (select k, v from src where k = 1), (null, 30) = (select k, v from src where k = 3), (null, 30) = (select k, v from src where k = 99), (2, 10) = (select k, v from src where k = 1), (2, 10) = (select k, v from src where k = 3), (2, 10) = (select k, v from src where k = 99), (9, 9) = (select k, v from src where k = 1), (9, 9) = (select k, v from src where k = 3), (9, 9) = (select k, v from src where k = 99), (null, null) = (select k, v from src where k = 1), (null, null) = (select k, v from src where k = 3), (null, null) = (select k, v from src where k = 99)
select k from src where (k, v) = any (select s.k, s.v from src s where s.k <> src.k) order by k
select k from src where (k, v) = all (select s.k, 15 from src s where s.k >= src.k) order by k
select '2' = any (select k from src), '2' = all (select v from src where v is not null), null = any (select k from src), 'x' = any (select t from src), 'x' = (select min(t) from src)
prepare p as select $1 = any (select k from src), $2 = all (select t from src where t is not null), ($3, $4) = any (select k, t from src where t is not null), $5 = (select min(k) from src) ;; execute p(2, 'x', 1, 'x', 1) ;; execute p(null, null, 2, null, 3)
select (1, 30) <> any (select k, v from src), (1, 30) <> all (select k, v from src), (1, null) <> any (select k, v from src), (1, null) <> all (select k, v from src), (null, 30) <> any (select k, v from src), (null, 30) <> all (select k, v from src), (2, 10) <> any (select k, v from src), (2, 10) <> all (select k, v from src), (9, 9) <> any (select k, v from src), (9, 9) <> all (select k, v from src), (null, null) <> any (select k, v from src), (null, null) <> all (select k, v from src)
select (1, 30) <> any (select k, v from src where k = 1), (1, 30) <> all (select k, v from src where k = 1), (1, null) <> any (select k, v from src where k = 1), (1, null) <> all (select k, v from src where k = 1), (null, 30) <> any (select k, v from src where k = 1), (null, 30) <> all (select k, v from src where k = 1), (2, 10) <> any (select k, v from src where k = 1), (2, 10) <> all (select k, v from src where k = 1), (9, 9) <> any (select k, v from src where k = 1), (9, 9) <> all (select k, v from src where k = 1), (null, null) <> any (select k, v from src where k = 1), (null, null) <> all (select k, v from src where k = 1)
select (1, 30) <> any (select k, v from src where false), (1, 30) <> all (select k, v from src where false), (1, null) <> any (select k, v from src where false), (1, null) <> all (select k, v from src where false), (null, 30) <> any (select k, v from src where false), (null, 30) <> all (select k, v from src where false), (2, 10) <> any (select k, v from src where false), (2, 10) <> all (select k, v from src where false), (9, 9) <> any (select k, v from src where false), (9, 9) <> all (select k, v from src where false), (null, null) <> any (select k, v from src where false), (null, null) <> all (select k, v from src where false)
select (1, 30) <> any (select null::int, 30), (1, 30) <> all (select null::int, 30), (1, null) <> any (select null::int, 30), (1, null) <> all (select null::int, 30), (null, 30) <> any (select null::int, 30), (null, 30) <> all (select null::int, 30), (2, 10) <> any (select null::int, 30), (2, 10) <> all (select null::int, 30), (9, 9) <> any (select null::int, 30), (9, 9) <> all (select null::int, 30), (null, null) <> any (select null::int, 30), (null, null) <> all (select null::int, 30)
select (1, 30) <> (select k, v from src where k = 1), (1, 30) <> (select k, v from src where k = 3), (1, 30) <> (select k, v from src where k = 99), (1, null) <> (select k, v from src where k = 1), (1, null) <> (select k, v from src where k = 3), (1, null) <> (select k, v from src where k = 99), (null, 30) <> (select k, v from src where k = 1), (null, 30) <> (select k, v from src where k = 3), (null, 30) <> (select k, v from src where k = 99), (2, 10) <> (select k, v from src where k = 1), (2, 10) <> (select k, v from src where k = 3), (2, 10) <> (select k, v from src where k = 99), (9, 9) <> (select k, v from src where k = 1), (9, 9) <> (select k, v from src where k = 3), (9, 9) <> (select k, v from src where k = 99), (null, null) <> (select k, v from src where k = 1), (null, null) <> (select k, v from src where k = 3), (null, null) <> (select k, v from src where k = 99)
select k from src where (k, v) <> any (select s.k, s.v from src s where s.k <> src.k) order by k
select k from src where (k, v) <> all (select s.k, 15 from src s where s.k >= src.k) order by k
select '2' <> any (select k from src), '2' <> all (select v from src where v is not null), null <> any (select k from src), 'x' <> any (select t from src), 'x' <> (select min(t) from src)
prepare p as select $1 <> any (select k from src), $2 <> all (select t from src where t is not null), ($3, $4) <> any (select k, t from src where t is not null), $5 <> (select min(k) from src) ;; execute p(2, 'x', 1, 'x', 1) ;; execute p(null, null, 2, null, 3)
select (1, 30) < any (select k, v from src), (1, 30) < all (select k, v from src), (1, null) < any (select k, v from src), (1, null) < all (select k, v from src), (null, 30) < any (select k, v from src), (null, 30) < all (select k, v from src), (2, 10) < any (select k, v from src), (2, 10) < all (select k, v from src), (9, 9) < any (select k, v from src), (9, 9) < all (select k, v from src), (null, null) < any (select k, v from src), (null, null) < all (select k, v from src)
select (1, 30) < any (select k, v from src where k = 1), (1, 30) < all (select k, v from src where k = 1), (1, null) < any (select k, v from src where k = 1), (1, null) < all (select k, v from src where k = 1), (null, 30) < any (select k, v from src where k = 1), (null, 30) < all (select k, v from src where k = 1), (2, 10) < any (select k, v from src where k = 1), (2, 10) < all (select k, v from src where k = 1), (9, 9) < any (select k, v from src where k = 1), (9, 9) < all (select k, v from src where k = 1), (null, null) < any (select k, v from src where k = 1), (null, null) < all (select k, v from src where k = 1)
select (1, 30) < any (select k, v from src where false), (1, 30) < all (select k, v from src where false), (1, null) < any (select k, v from src where false), (1, null) < all (select k, v from src where false), (null, 30) < any (select k, v from src where false), (null, 30) < all (select k, v from src where false), (2, 10) < any (select k, v from src where false), (2, 10) < all (select k, v from src where false), (9, 9) < any (select k, v from src where false), (9, 9) < all (select k, v from src where false), (null, null) < any (select k, v from src where false), (null, null) < all (select k, v from src where false)
select (1, 30) < any (select null::int, 30), (1, 30) < all (select null::int, 30), (1, null) < any (select null::int, 30), (1, null) < all (select null::int, 30), (null, 30) < any (select null::int, 30), (null, 30) < all (select null::int, 30), (2, 10) < any (select null::int, 30), (2, 10) < all (select null::int, 30), (9, 9) < any (select null::int, 30), (9, 9) < all (select null::int, 30), (null, null) < any (select null::int, 30), (null, null) < all (select null::int, 30)
select (1, 30) < (select k, v from src where k = 1), (1, 30) < (select k, v from src where k = 3), (1, 30) < (select k, v from src where k = 99), (1, null) < (select k, v from src where k = 1), (1, null) < (select k, v from src where k = 3), (1, null) < (select k, v from src where k = 99), (null, 30) < (select k, v from src where k = 1), (null, 30) < (select k, v from src where k = 3), (null, 30) < (select k, v from src where k = 99), (2, 10) < (select k, v from src where k = 1), (2, 10) < (select k, v from src where k = 3), (2, 10) < (select k, v from src where k = 99), (9, 9) < (select k, v from src where k = 1), (9, 9) < (select k, v from src where k = 3), (9, 9) < (select k, v from src where k = 99), (null, null) < (select k, v from src where k = 1), (null, null) < (select k, v from src where k = 3), (null, null) < (select k, v from src where k = 99)
select k from src where (k, v) < any (select s.k, s.v from src s where s.k <> src.k) order by k
select k from src where (k, v) < all (select s.k, 15 from src s where s.k >= src.k) order by k
select '2' < any (select k from src), '2' < all (select v from src where v is not null), null < any (select k from src), 'x' < any (select t from src), 'x' < (select min(t) from src)
prepare p as select $1 < any (select k from src), $2 < all (select t from src where t is not null), ($3, $4) < any (select k, t from src where t is not null), $5 < (select min(k) from src) ;; execute p(2, 'x', 1, 'x', 1) ;; execute p(null, null, 2, null, 3)
select (1, 30) <= any (select k, v from src), (1, 30) <= all (select k, v from src), (1, null) <= any (select k, v from src), (1, null) <= all (select k, v from src), (null, 30) <= any (select k, v from src), (null, 30) <= all (select k, v from src), (2, 10) <= any (select k, v from src), (2, 10) <= all (select k, v from src), (9, 9) <= any (select k, v from src), (9, 9) <= all (select k, v from src), (null, null) <= any (select k, v from src), (null, null) <= all (select k, v from src)
select (1, 30) <= any (select k, v from src where k = 1), (1, 30) <= all (select k, v from src where k = 1), (1, null) <= any (select k, v from src where k = 1), (1, null) <= all (select k, v from src where k = 1), (null, 30) <= any (select k, v from src where k = 1), (null, 30) <= all (select k, v from src where k = 1), (2, 10) <= any (select k, v from src where k = 1), (2, 10) <= all (select k, v from src where k = 1), (9, 9) <= any (select k, v from src where k = 1), (9, 9) <= all (select k, v from src where k = 1), (null, null) <= any (select k, v from src where k = 1), (null, null) <= all (select k, v from src where k = 1)
select (1, 30) <= any (select k, v from src where false), (1, 30) <= all (select k, v from src where false), (1, null) <= any (select k, v from src where false), (1, null) <= all (select k, v from src where false), (null, 30) <= any (select k, v from src where false), (null, 30) <= all (select k, v from src where false), (2, 10) <= any (select k, v from src where false), (2, 10) <= all (select k, v from src where false), (9, 9) <= any (select k, v from src where false), (9, 9) <= all (select k, v from src where false), (null, null) <= any (select k, v from src where false), (null, null) <= all (select k, v from src where false)
select (1, 30) <= any (select null::int, 30), (1, 30) <= all (select null::int, 30), (1, null) <= any (select null::int, 30), (1, null) <= all (select null::int, 30), (null, 30) <= any (select null::int, 30), (null, 30) <= all (select null::int, 30), (2, 10) <= any (select null::int, 30), (2, 10) <= all (select null::int, 30), (9, 9) <= any (select null::int, 30), (9, 9) <= all (select null::int, 30), (null, null) <= any (select null::int, 30), (null, null) <= all (select null::int, 30)
select (1, 30) <= (select k, v from src where k = 1), (1, 30) <= (select k, v from src where k = 3), (1, 30) <= (select k, v from src where k = 99), (1, null) <= (select k, v from src where k = 1), (1, null) <= (select k, v from src where k = 3), (1, null) <= (select k, v from src where k = 99), (null, 30) <= (select k, v from src where k = 1), (null, 30) <= (select k, v from src where k = 3), (null, 30) <= (select k, v from src where k = 99), (2, 10) <= (select k, v from src where k = 1), (2, 10) <= (select k, v from src where k = 3), (2, 10) <= (select k, v from src where k = 99), (9, 9) <= (select k, v from src where k = 1), (9, 9) <= (select k, v from src where k = 3), (9, 9) <= (select k, v from src where k = 99), (null, null) <= (select k, v from src where k = 1), (null, null) <= (select k, v from src where k = 3), (null, null) <= (select k, v from src where k = 99)
select k from src where (k, v) <= any (select s.k, s.v from src s where s.k <> src.k) order by k
select k from src where (k, v) <= all (select s.k, 15 from src s where s.k >= src.k) order by k
select '2' <= any (select k from src), '2' <= all (select v from src where v is not null), null <= any (select k from src), 'x' <= any (select t from src), 'x' <= (select min(t) from src)
prepare p as select $1 <= any (select k from src), $2 <= all (select t from src where t is not null), ($3, $4) <= any (select k, t from src where t is not null), $5 <= (select min(k) from src) ;; execute p(2, 'x', 1, 'x', 1) ;; execute p(null, null, 2, null, 3)
select (1, 30) > any (select k, v from src), (1, 30) > all (select k, v from src), (1, null) > any (select k, v from src), (1, null) > all (select k, v from src), (null, 30) > any (select k, v from src), (null, 30) > all (select k, v from src), (2, 10) > any (select k, v from src), (2, 10) > all (select k, v from src), (9, 9) > any (select k, v from src), (9, 9) > all (select k, v from src), (null, null) > any (select k, v from src), (null, null) > all (select k, v from src)
select (1, 30) > any (select k, v from src where k = 1), (1, 30) > all (select k, v from src where k = 1), (1, null) > any (select k, v from src where k = 1), (1, null) > all (select k, v from src where k = 1), (null, 30) > any (select k, v from src where k = 1), (null, 30) > all (select k, v from src where k = 1), (2, 10) > any (select k, v from src where k = 1), (2, 10) > all (select k, v from src where k = 1), (9, 9) > any (select k, v from src where k = 1), (9, 9) > all (select k, v from src where k = 1), (null, null) > any (select k, v from src where k = 1), (null, null) > all (select k, v from src where k = 1)
select (1, 30) > any (select k, v from src where false), (1, 30) > all (select k, v from src where false), (1, null) > any (select k, v from src where false), (1, null) > all (select k, v from src where false), (null, 30) > any (select k, v from src where false), (null, 30) > all (select k, v from src where false), (2, 10) > any (select k, v from src where false), (2, 10) > all (select k, v from src where false), (9, 9) > any (select k, v from src where false), (9, 9) > all (select k, v from src where false), (null, null) > any (select k, v from src where false), (null, null) > all (select k, v from src where false)
select (1, 30) > any (select null::int, 30), (1, 30) > all (select null::int, 30), (1, null) > any (select null::int, 30), (1, null) > all (select null::int, 30), (null, 30) > any (select null::int, 30), (null, 30) > all (select null::int, 30), (2, 10) > any (select null::int, 30), (2, 10) > all (select null::int, 30), (9, 9) > any (select null::int, 30), (9, 9) > all (select null::int, 30), (null, null) > any (select null::int, 30), (null, null) > all (select null::int, 30)
select (1, 30) > (select k, v from src where k = 1), (1, 30) > (select k, v from src where k = 3), (1, 30) > (select k, v from src where k = 99), (1, null) > (select k, v from src where k = 1), (1, null) > (select k, v from src where k = 3), (1, null) > (select k, v from src where k = 99), (null, 30) > (select k, v from src where k = 1), (null, 30) > (select k, v from src where k = 3), (null, 30) > (select k, v from src where k = 99), (2, 10) > (select k, v from src where k = 1), (2, 10) > (select k, v from src where k = 3), (2, 10) > (select k, v from src where k = 99), (9, 9) > (select k, v from src where k = 1), (9, 9) > (select k, v from src where k = 3), (9, 9) > (select k, v from src where k = 99), (null, null) > (select k, v from src where k = 1), (null, null) > (select k, v from src where k = 3), (null, null) > (select k, v from src where k = 99)
select k from src where (k, v) > any (select s.k, s.v from src s where s.k <> src.k) order by k
select k from src where (k, v) > all (select s.k, 15 from src s where s.k >= src.k) order by k
select '2' > any (select k from src), '2' > all (select v from src where v is not null), null > any (select k from src), 'x' > any (select t from src), 'x' > (select min(t) from src)
prepare p as select $1 > any (select k from src), $2 > all (select t from src where t is not null), ($3, $4) > any (select k, t from src where t is not null), $5 > (select min(k) from src) ;; execute p(2, 'x', 1, 'x', 1) ;; execute p(null, null, 2, null, 3)
select (1, 30) >= any (select k, v from src), (1, 30) >= all (select k, v from src), (1, null) >= any (select k, v from src), (1, null) >= all (select k, v from src), (null, 30) >= any (select k, v from src), (null, 30) >= all (select k, v from src), (2, 10) >= any (select k, v from src), (2, 10) >= all (select k, v from src), (9, 9) >= any (select k, v from src), (9, 9) >= all (select k, v from src), (null, null) >= any (select k, v from src), (null, null) >= all (select k, v from src)
select (1, 30) >= any (select k, v from src where k = 1), (1, 30) >= all (select k, v from src where k = 1), (1, null) >= any (select k, v from src where k = 1), (1, null) >= all (select k, v from src where k = 1), (null, 30) >= any (select k, v from src where k = 1), (null, 30) >= all (select k, v from src where k = 1), (2, 10) >= any (select k, v from src where k = 1), (2, 10) >= all (select k, v from src where k = 1), (9, 9) >= any (select k, v from src where k = 1), (9, 9) >= all (select k, v from src where k = 1), (null, null) >= any (select k, v from src where k = 1), (null, null) >= all (select k, v from src where k = 1)
select (1, 30) >= any (select k, v from src where false), (1, 30) >= all (select k, v from src where false), (1, null) >= any (select k, v from src where false), (1, null) >= all (select k, v from src where false), (null, 30) >= any (select k, v from src where false), (null, 30) >= all (select k, v from src where false), (2, 10) >= any (select k, v from src where false), (2, 10) >= all (select k, v from src where false), (9, 9) >= any (select k, v from src where false), (9, 9) >= all (select k, v from src where false), (null, null) >= any (select k, v from src where false), (null, null) >= all (select k, v from src where false)
select (1, 30) >= any (select null::int, 30), (1, 30) >= all (select null::int, 30), (1, null) >= any (select null::int, 30), (1, null) >= all (select null::int, 30), (null, 30) >= any (select null::int, 30), (null, 30) >= all (select null::int, 30), (2, 10) >= any (select null::int, 30), (2, 10) >= all (select null::int, 30), (9, 9) >= any (select null::int, 30), (9, 9) >= all (select null::int, 30), (null, null) >= any (select null::int, 30), (null, null) >= all (select null::int, 30)
select (1, 30) >= (select k, v from src where k = 1), (1, 30) >= (select k, v from src where k = 3), (1, 30) >= (select k, v from src where k = 99), (1, null) >= (select k, v from src where k = 1), (1, null) >= (select k, v from src where k = 3), (1, null) >= (select k, v from src where k = 99), (null, 30) >= (select k, v from src where k = 1), (null, 30) >= (select k, v from src where k = 3), (null, 30) >= (select k, v from src where k = 99), (2, 10) >= (select k, v from src where k = 1), (2, 10) >= (select k, v from src where k = 3), (2, 10) >= (select k, v from src where k = 99), (9, 9) >= (select k, v from src where k = 1), (9, 9) >= (select k, v from src where k = 3), (9, 9) >= (select k, v from src where k = 99), (null, null) >= (select k, v from src where k = 1), (null, null) >= (select k, v from src where k = 3), (null, null) >= (select k, v from src where k = 99)
select k from src where (k, v) >= any (select s.k, s.v from src s where s.k <> src.k) order by k
select k from src where (k, v) >= all (select s.k, 15 from src s where s.k >= src.k) order by k
select '2' >= any (select k from src), '2' >= all (select v from src where v is not null), null >= any (select k from src), 'x' >= any (select t from src), 'x' >= (select min(t) from src)
prepare p as select $1 >= any (select k from src), $2 >= all (select t from src where t is not null), ($3, $4) >= any (select k, t from src where t is not null), $5 >= (select min(k) from src) ;; execute p(2, 'x', 1, 'x', 1) ;; execute p(null, null, 2, null, 3)
select 'x' in (select t from src), 'q' in (select t from src where t is not null), 'q' in (select t from src), 'x' not in (select t from src), null in (select t from src)
select k from src b where 'x' in (select t from src where src.k = b.k) order by k
select '2019-01-15' in (select hired from emp), '9000' in (select pay from emp), '{a,b}' in (select tags from emp), 'happy' in (select m from felt), 'nope' in (select m from felt)
select ('1', 'x') in (select k, t from src), ('1', null) in (select k, t from src), ('9', 'x') not in (select k, t from src where t is not null)
select 1 in (select '1')
select 'x' in (select 'x'), 'x' = any (select 'x' union select 'y')
select 'abc' like any (select t || '%' from src)
select (1, 2) in (select k from src)
select (1, 2, 3) = (select k, v from src)
select (1, 30) = (select k, v from src)
update src set v = 0 where (k, v) <> all (select a, b * 10 from pair) returning k
delete from src where '1' = any (select a from pair where b = src.k) returning k
insert into src select 6, 6 where 'x' in (select t from src) returning k
select count(*) from pg_sleep(0)
select s.pg_sleep, k from pg_sleep(0) s, src where k = 1
