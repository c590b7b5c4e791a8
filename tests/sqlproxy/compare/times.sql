-- dates, times, intervals, zones
select date '2024-02-29', date 'Feb 29, 2024', date '20240229', date '29.2.2024'
select date '2023-02-29'
select date '2024-13-01'
select date 'x'
select timestamp '2024-02-29 13:14:15.123456', timestamp '2024-02-29T13:14', timestamp '2024-02-29', timestamp(0) '2024-02-29 13:14:15.5'
select timestamptz '2024-02-29 13:14:15+02', timestamptz '2024-02-29 13:14:15 America/New_York', timestamptz '2024-02-29 13:14:15-03:30', timestamptz '2024-02-29 13:14 EST'
select timestamptz '2024-02-29 13:14:15 Nowhere/Land'
select timestamp '2024-02-29 25:00'
select time '13:14:15.5', time '1:2 PM', time '23:59:60', time(1) '01:02:03.456'
select time '24:01'
select interval '1 year 2 months 3 days 4 hours 5 minutes 6.789 seconds', interval '1-2', interval '3 4:05:06', interval 'P1Y2M3DT4H5M6S', interval '-1 day +02:03'
select interval '1.5 days', interval '1.5 months', interval '2 weeks', interval '1 decade', interval '90 minutes', interval '1 day ago'
select interval '1' year, interval '1 2' day to hour, interval '1:30' minute to second, interval '10.789' second(1), interval '5' month
select interval 'x'
select interval '1 lightyear'
select interval '999999999999 years'
select date '2024-01-31' + 1, date '2024-01-31' - 31, date '2024-03-01' - date '2024-02-01', 3 + date '2024-01-01'
select date '2024-01-31' + interval '1 month', timestamp '2024-01-31' + interval '1 month', timestamptz '2024-01-31 00:00+00' + interval '1 month'
select timestamp '2024-03-01' - timestamp '2024-02-01 12:00', timestamptz '2024-03-01 00:00+00' - timestamptz '2024-02-28 12:00+00'
select date '2024-03-01' - timestamp '2024-02-01 12:00', timestamp '2024-03-01' - date '2024-02-01', date '2024-03-01' - time '01:00'
select time '10:00' + interval '15 hours', time '10:00' - time '12:30', time '01:00' - interval '2 hours', date '2024-01-01' + time '03:04'
select interval '1 month' + interval '40 days', interval '1 day' - interval '25 hours', -interval '1 day 2 hours', interval '1 day' * 2.5, interval '1 month' / 4, 3 * interval '20 minutes'
select interval '1 day' / 0
select interval '30 days' = interval '1 month', interval '24 hours' = interval '1 day', interval '1 year' > interval '360 days', interval '-1 day' < interval '0'
select justify_days('35 days'), justify_hours('50 hours'), justify_interval('1 month -1 hour')
select date '2024-01-01' < timestamp '2024-01-01 00:00:01', date '2024-01-01' = timestamptz '2024-01-01 00:00+00', timestamp '2024-01-01' > date '2023-12-31'
select extract(year from date '2024-02-29'), extract(month from date '2024-02-29'), extract(day from date '2024-02-29'), extract(quarter from date '2024-11-01')
select extract(dow from date '2024-02-25'), extract(isodow from date '2024-02-25'), extract(doy from date '2024-12-31'), extract(week from date '2024-12-31'), extract(isoyear from date '2024-12-31')
select extract(hour from time '13:14:15.5'), extract(second from time '13:14:15.5'), extract(milliseconds from time '13:14:15.5'), extract(microseconds from time '13:14:15.5')
select extract(epoch from timestamp '2024-01-01'), extract(epoch from timestamptz '2024-01-01 00:00+01'), extract(epoch from interval '1 month 1 day'), extract(epoch from date '2024-01-01')
select extract(century from date '2000-12-31'), extract(decade from date '1999-01-01'), extract(millennium from date '2001-01-01'), extract(julian from date '2024-01-01')
select extract(timezone from timestamptz '2024-01-01 00:00+01'), extract(day from interval '3 days 25 hours'), extract(hour from interval '3 days 25 hours'), extract(month from interval '14 months')
select extract(fortnight from date '2024-01-01')
select extract(hour from date '2024-01-01')
select date_part('year', timestamp '2024-02-29'), date_part('epoch', interval '1.5 seconds'), date_part('dow', timestamptz '2024-01-01 00:00+00')
select date_trunc('hour', timestamp '2024-02-29 13:14:15'), date_trunc('week', timestamp '2024-02-29 13:14:15'), date_trunc('quarter', date '2024-02-29'), date_trunc('decade', timestamp '2024-02-29')
select date_trunc('day', timestamptz '2024-02-29 23:14:15+00', 'Asia/Tokyo'), date_trunc('month', interval '1 year 2 months 3 days'), date_trunc('minute', time '13:14:15')
select date_trunc('nonsense', timestamp '2024-02-29')
select date_bin('15 minutes', timestamp '2024-02-29 13:14:15', timestamp '2024-01-01'), date_bin('1 day', timestamptz '2024-02-29 13:14:15+00', timestamptz '2024-01-01 06:00+00')
select date_bin('1 month', timestamp '2024-02-29', timestamp '2024-01-01')
select age(timestamp '2024-03-01', timestamp '2023-12-31'), age(date '2024-02-29', date '2023-02-28'), age(timestamp '2023-12-31', timestamp '2024-03-01')
select timestamp '2024-07-01 12:00' at time zone 'Europe/Zurich', timestamptz '2024-07-01 12:00+00' at time zone 'Europe/Zurich', timestamptz '2024-07-01 12:00+00' at time zone interval '-5 hours'
select timestamp '2024-03-31 02:30' at time zone 'Europe/Zurich', timestamp '2024-10-27 02:30' at time zone 'Europe/Zurich'
select timestamptz '2024-03-31 00:59:59+00' at time zone 'Europe/Zurich', timestamptz '2024-03-31 01:00:00+00' at time zone 'Europe/Zurich'
select timestamp '2024-07-01 12:00' at time zone 'Mars/Olympus'
select timezone('UTC', timestamp '2024-07-01 12:00'), timezone('America/St_Johns', timestamptz '2024-01-01 00:00+00')
select make_date(2024, 2, 29), make_time(8, 15, 23.5), make_timestamp(2024, 2, 29, 8, 15, 23.5), make_interval(years => 1, days => 10, secs => 1.5)
select make_date(2023, 2, 29)
select make_timestamptz(2024, 7, 1, 12, 0, 0, 'Europe/Zurich'), make_interval(0, 0, 1, 2)
select to_char(timestamp '2024-02-09 03:04:05.678', 'YYYY-MM-DD HH24:MI:SS.MS'), to_char(timestamp '2024-02-09 15:04:05', 'HH12:MI AM'), to_char(date '2024-02-09', 'Day, DD Month YYYY'), to_char(date '2024-02-09', 'FMDay, FMDD FMMonth YYYY')
select to_char(timestamp '2024-02-09', 'Dy DY dy D ID DDD IW WW IYYY Q J'), to_char(timestamp '2024-02-09', '"quoted" YY Y,YYY CC Mon MON mon'), to_char(timestamp '2024-02-09 00:00', 'HH12 HH24 SSSS US TZ')
select to_char(timestamptz '2024-02-09 03:04:05+00', 'TZH:TZM TZ OF'), to_char(interval '1 day 25:30:15', 'DD HH24:MI:SS'), to_char(date '2024-02-01', 'DDth fmddth')
select to_date('05 Dec 2024', 'DD Mon YYYY'), to_date('2024-366', 'YYYY-DDD'), to_date('20240229', 'YYYYMMDD'), to_timestamp('2024-02-29 13:14:15', 'YYYY-MM-DD HH24:MI:SS')
select to_date('2024-02-30', 'YYYY-MM-DD')
select to_timestamp(1709212455.5), to_timestamp(0)
select to_timestamp('x', 'YYYY')
select isfinite(date '2024-01-01'), isfinite(timestamp '2024-01-01'), isfinite(interval '1 day')
select (date '2024-01-01', date '2024-06-30') overlaps (date '2024-06-01', date '2024-12-31'), (date '2024-01-01', interval '10 days') overlaps (date '2024-01-11', interval '1 day')
select '2024-02-29 13:14:15+00'::timestamptz::date, '2024-02-29 13:14:15'::timestamp::time, '13:14'::time::interval, '1 day 02:00'::interval::time, '2024-02-29'::date::timestamptz
select '2024-02-29'::date::text, '2024-02-29 13:14:15'::timestamp::text, interval '1 day'::text, '13:14'::time::varchar(5)
select 5::date
select '2024-02-29 12:00'::timestamp(3), '2024-02-29 12:00:00.9996'::timestamp(3), '12:00:00.99'::time(1), interval(2) '1.238 seconds'
select now() = now(), now() = transaction_timestamp(), statement_timestamp() >= now(), clock_timestamp() >= now(), current_date = now()::date
select current_timestamp(0) <= now() + interval '1 second', localtimestamp::date = current_date, pg_typeof(localtime), pg_typeof(current_timestamp)
select id, left_at - hired, hired + 1, hired - date '2019-01-01', age(left_at, hired) from emp where id in (3, 6) order by id
select id, extract(epoch from at)::bigint, at at time zone 'Asia/Kolkata', at::date from sale where id in (1, 5, 30) order by id
select date_trunc('hour', at at time zone 'Europe/Zurich') as h, count(*) from sale group by h order by h limit 6
set timezone = 'America/New_York' ;; select timestamptz '2024-07-01 12:00+00', timestamp '2024-07-01 12:00'::timestamptz, date '2024-07-01'::timestamptz ;; select at, at::date, at::time from sale where id < 4 order by id
set timezone = 'Europe/Zurich' ;; select timestamptz '2024-03-31 02:30', timestamptz '2024-10-27 02:30', timestamptz '2024-03-30 12:00' + interval '1 day', timestamptz '2024-03-30 12:00' + interval '24 hours' ;; select date_trunc('day', timestamptz '2024-10-27 12:00+00') ;; select extract(timezone_hour from timestamptz '2024-07-01 12:00+00')
set timezone to 'Mars/Olympus'
set time zone '+3' ;; show timezone ;; select timestamptz '2024-01-01 00:00+00'
set time zone interval '-03:30' hour to minute ;; select timestamptz '2024-01-01 00:00+00'
set datestyle = 'German' ;; select date '2024-02-29', timestamp '2024-02-29 12:00'
set datestyle = 'SQL, DMY' ;; select date '2024-02-29', '03/04/2024'::date
set datestyle = 'Postgres, MDY' ;; select timestamp '2024-02-29 12:00:01'
set intervalstyle = 'iso_8601' ;; select interval '1 year 2 days 03:04:05'
set intervalstyle = 'postgres_verbose' ;; select interval '1 year 2 days 03:04:05', interval '-1 day'
set intervalstyle = 'sql_standard' ;; select interval '1 year 2 months', interval '2 days 03:04:05'
set local timezone = 'Asia/Tokyo' ;; select timestamptz '2024-01-01 00:00+00'
select '1 day'::interval * 'NaN'::float8
select date 'infinity'
select timestamp '294277-01-01'
select date '2024-01-01' + 100000000
select timestamp '2024-01-01' + '1 day', '2024-01-01' + interval '1 day'
select date '2024-01-01' + '1 day'
select date '2024-01-01' * 2
select sum(x) from (values (interval '1 day'), (interval '02:00'), (null)) v(x)
select avg(x), min(x), max(x) from (values (interval '1 day'), (interval '02:00')) v(x)
select max(d), min(d) from (values (date '2024-01-01'), ('2023-01-01')) v(d)
-- an offset in a text of a timestamp without zone does not count, whatever the text's length
select '2024-11-03 06:30+00'::timestamp, timestamp '2024-11-03 06:30+05', timestamp '2024-11-03 06:30:00.123+00', '2024-11-03T06:30-05'::timestamp, timestamp '2024-11-03 06:30:00.5+02:30'
insert into instants (id, ts) values (90, '2024-11-03 06:30+00'), (91, '2024-11-03 06:30 EST'), (92, '2024-11-03 06:30:01.250-07') returning ts
update instants set ts = '2024-11-03 06:30+05', d = '2024-11-03 23:30-05' where id = 1 returning ts, d
select id from instants where ts = '2024-11-03 01:30+05' or d = '2024-07-01 10:00+01' order by id
select i.id from instants i join dept on dept.id = 1 where i.ts = '2024-11-03 01:30+05' or i.d = '2024-07-01 10:00+01' order by i.id
select id from instants where ts in ('2024-11-03 01:30+05', '2024-03-10 02:30Z') order by id
select id from instants where ts = any('{2024-11-03 01:30+05,2024-03-10 02:30Z}') order by id
-- a day, 24 hours and 30 days, a month are equal and add differently
set timezone = 'America/New_York' ;; select i.id, x + interval '1 day', x + interval '24 hours', x - interval '1 month', x - interval '30 days', x + interval '720 hours' from instants i join dept d2 on d2.id = 1 order by 1
select e.id, e.hired + interval '1 month', e.hired + interval '30 days', e.hired + interval '720 hours' from emp e join dept d on d.id = e.dept order by 1
select max(e.hired + interval '1 month'), max(e.hired + interval '30 days'), min(e.left_at - interval '1 day'), min(e.left_at - interval '24 hours') from emp e join dept d on d.id = e.dept
select e.id, (e.pay + 1.0)::text, (e.pay + 1.00)::text, case when e.id > 1 then e.pay else 1.0 end, case when e.id > 1 then e.pay else 1.000 end from emp e join dept d on d.id = e.dept order by 1
select e.id, interval '1 month'::text || e.id, interval '30 days'::text || e.id, interval '1 mon' = interval '30 days' from emp e join dept d on d.id = e.dept order by 1
select hired + interval '1 month' from emp group by hired + interval '30 days'
select hired + interval '1 month', count(*) from emp group by hired + interval '1 mon' order by 1
-- zones that are intervals of more than a day; periods with open ends
select timestamp '2024-01-01' at time zone interval '24 hours', timestamptz '2024-01-01 00:00+00' at time zone interval '-200 hours', timestamptz '2024-01-01 00:00+00' at time zone interval '05:30:15', timestamp '2024-01-01' at time zone interval '00:00:00.5', timestamptz '2024-01-01 00:00+00' at time zone interval '-23:59:59.5'
select x at time zone i, ts at time zone i from instants, (values (interval '24 hours'), ('-167:59')) v(i) where id < 3 order by 1, 2
select timestamp '2024-01-01' at time zone interval '1 day'
select (timestamp '1900-01-01', null::timestamp) overlaps (timestamp '1900-01-01', interval '-1 day'), (timestamp '2024-01-01', timestamp '2024-01-02') overlaps (timestamp '2024-01-03', null::interval), (timestamp '2024-01-01', null::timestamp) overlaps (timestamp '2024-01-03', timestamp '2024-01-04'), (date '2024-01-01', date '2024-01-05') overlaps (date '2024-01-03', null::date), (time '10:00', time '11:00') overlaps (time '12:00', null::time)
