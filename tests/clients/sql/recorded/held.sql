1: create schema s1

1: create sequence r

1: create sequence s1.q

1: create table s1.u (a int)

1: create view v as select nextval('r') as n

1: create view w as select currval('"r"') as n, currval('public.r'::regclass) as m

1: create view x as select 'r'::text as r, last_value, nextval('r') as n from r

1: set search_path = s1, public

1: create view s as select nextval('q') as n, 'u'::regclass::oid = 's1.u'::regclass::oid as same

1: reset search_path

1: select n, same from s1.s

1: alter sequence r rename to "R 2"

1: select n from v

1: select n, m from w

1: select * from x

1: create sequence r start 100

1: select n from v

1: alter sequence s1.q rename to q2

1: alter table s1.u rename to u2

1: select n, same from s1.s

1: alter sequence "R 2" set schema s1

1: select n from v

1: alter schema s1 rename to s2

1: select n from v

1: drop sequence s2."R 2"

1: drop table s2.u2

1: drop sequence r

1: create type mood as enum ('a', 'b')

1: select mood('a')

1: create function mood(text) returns int language sql as 'select 1'

1: select mood('a')

1: select mood('c')

1: select mood('a'::text)

1: select mood('a'::varchar), mood(mood 'b')

1: select mood(1)

1: create function int4(text) returns text language sql as 'select $1'

1: select int4('7'), public.int4('7'), int4('7'::text)

1: lock table v2

1: lock table s2.q2 in access share mode

1: lock table s2.q2
