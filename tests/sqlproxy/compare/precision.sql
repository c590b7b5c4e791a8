-- columns of timestamp(n), time(n) and interval fields: rounded and cut when they are written
select * from moments order by id
insert into moments (id, s, ms, tz, t, i) values (7, '2024-01-02 03:04:05.5', '2024-01-02 03:04:05.0005', '2024-01-02 03:04:05.005+00', '03:04:05.25', '1.005 s') returning *
insert into moments (id, s, ms, tz) values (7, '1999-12-31 23:59:58.5', '1999-12-31 23:59:58.0005', '1999-12-31 23:59:58.005+00') returning s, ms, tz
insert into moments (id, s) values (7, '2024-12-31 23:59:59.9999996'), (8, null) ;; select id, s from moments where id > 6 order by id
insert into moments (id, ms) values (7, '2024-01-02 03:04:05.678901') ;; select id from moments where ms = '2024-01-02 03:04:05.679' ;; select id from moments where ms = '2024-01-02 03:04:05.678901'
insert into moments (id, u) values (7, '2024-01-02 03:04:05.684')
insert into moments (id, u) values (7, '2024-01-02 03:04:05.684') on conflict (u) do update set s = '2024-01-02 03:04:05.6' returning id, s, u
update moments set s = raw, ms = raw where id = 1 returning s, ms
update moments set i = i * 1.5, t = t + interval '0.06 s' where id = 1 returning i, t
insert into moments (id, s, ms) select id + 10, raw, raw from moments where id < 3 returning id, s, ms
insert into moments (id, many, spans) values (7, array['2024-01-02 03:04:05.678901'::timestamp, null], '{1.5 s,-1.5 s}') returning many, spans
insert into moments (id, y, d, m, sec) values (7, '2 years 13 mons 3 days 04:05:06.7', '2 days 04:05:06.7', '2 days 04:05:56.7', '2 days 04:05:06.78') returning y, d, m, sec
insert into moments (id, y, d, m, sec) values (7, '-13 mons 3 days', '-2 days -04:05:06.7', '-04:05:56.7', '-6.789') returning y, d, m, sec
insert into moments (id, y, d, sec) values (7, '3', '3', '3') returning y, d, sec
merge into moments using (select 7 as id, '2024-01-01 00:00:00.55555'::timestamp as v) s on moments.id = s.id when not matched then insert (id, s, ms) values (s.id, s.v, s.v) ;; select s, ms from moments where id = 7
select attname, atttypmod, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'moments'::regclass and attnum > 0 order by attnum
select column_name, data_type, datetime_precision, udt_name from information_schema.columns where table_name = 'moments' order by ordinal_position
select format_type(1114, 3), format_type(1185, 0), format_type(1186, 2147418115), format_type(1083, 2), format_type(1187, 2147418112), format_type(1186, 458751), format_type(1114, -1), format_type(1186, -1), format_type(1700, 655359)
create table copies as select ms, tz, i, raw::timestamp(1) as z, many, y from moments ;; select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'copies'::regclass and attnum > 0 order by attnum
create view looks as select ms, t, y from moments ;; select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'looks'::regclass order by attnum
select max(ms), min(s) from moments
select ms, count(*) from moments group by ms order by ms
select ms from moments union select raw::timestamp from moments order by 1
select a.s, b.s from moments a join moments b on a.s = b.s order by 1, 2, a.id, b.id
create table nothing (a timestamp(-1))
create table nothing (a interval day(3))
create table nothing (a interval(3) day)
select '2024-01-01 00:00:00.5'::timestamp(0), '1999-12-31 23:59:59.5'::timestamp(0), '1999-12-31 23:59:59.5+00'::timestamptz(0), '12:00:00.55'::time(1), '-0.55 s'::interval(1), '1960-02-29 12:00:00.0005'::timestamp(3)
select interval '1:30' minute to second, interval '1 2:03' minute to second, interval '-2:03' minute to second, interval '1:02:03' minute to second, interval '1:30' hour to minute, interval '1:30'
select interval '1 2' hour, interval '1.5 2' day to hour, interval '1 day 5' hour, interval '1 year 2' month, interval '1 day 5' minute, '{5,1:30}'::interval hour[]
select interval '1 day 5' day
select interval '1 2' minute
select interval '1 2 ago' hour
insert into moments (id, y, d, m) values (7, '1 year 2', '1 2', '1 hour 5') returning y, d, m
insert into moments (id, spans) values (7, '{1.5 s,null}'), (8, '{2 s,null}'), (9, '{}') ;; select spans, count(*) from moments group by spans order by 2, 1 ;; select a.id, b.spans from moments a join moments b on a.id = b.id where a.id > 6 order by a.id
select interval '3 5 hours', interval '3 5 h 2 minutes', interval '1 mon 3 5 hours ago', interval '3 5 hours 6' day to minute, interval '3 5 hours' hour
select interval '3 5'
select interval '3 5 minutes'
select interval '2 3 5 hours'
select column_name, interval_type, interval_precision, datetime_precision from information_schema.columns where table_name = 'moments' order by ordinal_position
