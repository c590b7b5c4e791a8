"""The rules of consensus, one per module: pure decisions without I/O, time or randomness of their
own.

| module | rule | source |
|---|---|---|
| `append` | what an AppendEntries may change in a log | Raft figure 2, AppendEntries 2-5 |
| `commit` | how far a leader may commit | Raft sections 5.3, 5.4.2; thesis 10.2.1 |
| `flow` | what may be on its way to a follower, what is lost | thesis 10.2.1; fixes P4, P10, P14 |
| `hibernate` | idle groups sleep | CockroachDB's quiescence; F1 |
| `lease` | promises to a leader and the lease that rests on them | thesis 6.4.1 |
| `membership` | configurations in the log | thesis 4.1, 4.3 |
| `prevote` | asking before disturbing | thesis 9.6 |
| `progress` | which followers keep up | thesis 4.2.1 |
| `reads` | ReadIndex | thesis 6.4 |
| `reorder` | messages that overtook others wait for them | F10 |
| `transfer` | handing over, with proposals frozen | thesis 3.10 |
| `sizes` | bytes of commands up to any index, roughly | - |
| `votes` | counting each voter once | Raft section 5.2; fix P9 |
| `witness` | what a voter without data may be sent | Paris 1986; F15 to F17 |
"""
