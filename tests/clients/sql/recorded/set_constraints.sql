1: create schema s

1: create table t (id int primary key, n int unique deferrable, m int unique deferrable initially deferred, p int references t deferrable)

1: create table s.t (id int primary key, n int unique deferrable, p int references s.t deferrable)

1: insert into t values (1, 1, 1), (2, 2, 2)

1: insert into s.t values (1, 1), (2, 2)

1: begin

1: set constraints s.t_n_key deferred

1: update s.t set n = 1

1: update t set n = 1

1: rollback

1: begin

1: set constraints t_n_key, t_p_fkey deferred

1: update t set n = 1, p = 9

1: update s.t set p = 9

1: rollback

1: begin

1: set search_path = s, public

1: set constraints t_n_key deferred

1: update t set n = 1

1: update public.t set n = 1

1: rollback

1: begin

1: set constraints t_pkey, s.t_pkey immediate

1: set constraints t_pkey deferred

1: rollback

1: begin

1: set constraints nowhere.t_n_key deferred

1: rollback

1: begin

1: set constraints s.t_m_key deferred

1: rollback

1: create table q (id int, p int constraint same references t deferrable)

1: create table q2 (id int, p int constraint same references t)

1: begin

1: set constraints same immediate

1: set constraints same deferred

1: rollback

1: begin

1: savepoint x

1: set constraints t_n_key deferred

1: rollback to x

1: update t set n = 1

1: rollback to x

1: set constraints all immediate

1: savepoint y

1: set constraints all deferred

1: release y

1: update t set n = 1, m = 1, p = 7

1: rollback to x

1: update t set m = 1

1: update t set m = id

1: commit

1: select * from t order by id
