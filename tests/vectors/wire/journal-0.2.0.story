{"time":"2026-11-19T15:36:55.521680Z","ev":"journal.begun","version":1,"muster":"0.2.0"}
{"time":"2026-11-19T15:36:55.521680Z","ev":"job.state","run":"j1","epoch":1795102615393933}
{"time":"2026-11-19T15:36:55.521679Z","ev":"node.announced","run":"j1","node":"host_13225_932979886","address":"127.0.0.1:46529","connection":1,"incarnation":1795102615521088,"min":2,"max":2}
{"time":"2026-11-19T15:36:55.521795Z","ev":"node.announced","run":"j1","node":"host_13224_1028694213","address":"127.0.0.1:50917","connection":2,"incarnation":1795102615521223,"min":2,"max":2}
{"time":"2026-11-19T15:36:55.521795Z","ev":"job.complete","run":"j1","round":1,"nodes":2,"why":"full"}
{"time":"2026-11-19T15:36:55.521795Z","ev":"told.sealed","run":"j1","to":"all","round":1,"nodes":2}
{"time":"2026-11-19T15:36:56.033916Z","ev":"node.failed","run":"j1","node":"host_13225_932979886","round":1,"first":"yes","worker":0,"status":3,"signal":0,"text":"rank 1"}
{"time":"2026-11-19T15:36:56.033916Z","ev":"job.reopened","run":"j1","round":1,"next":2,"why":"failed","node":"host_13225_932979886"}
{"time":"2026-11-19T15:36:56.033916Z","ev":"told.reopened","run":"j1","to":"all","round":1,"nodes":2,"next":2}
{"time":"2026-11-19T15:36:56.034179Z","ev":"node.announced","run":"j1","node":"host_13225_932979886","address":"127.0.0.1:34791","connection":1,"incarnation":1795102615521088,"min":2,"max":2,"knows":1,"holds":"no"}
{"time":"2026-11-19T15:36:56.037068Z","ev":"node.announced","run":"j1","node":"host_13224_1028694213","address":"127.0.0.1:52875","connection":2,"incarnation":1795102615521223,"min":2,"max":2,"knows":1,"holds":"no"}
{"time":"2026-11-19T15:36:56.037068Z","ev":"job.complete","run":"j1","round":2,"nodes":2,"why":"full"}
{"time":"2026-11-19T15:36:56.037068Z","ev":"told.sealed","run":"j1","to":"all","round":2,"nodes":2}
{"time":"2026-11-19T15:36:58.049044Z","ev":"node.finished","run":"j1","node":"host_13225_932979886"}
{"time":"2026-11-19T15:36:58.055951Z","ev":"node.finished","run":"j1","node":"host_13224_1028694213"}
{"time":"2026-11-19T15:36:58.055951Z","ev":"job.finished","run":"j1","round":2,"by":"","reason":"all 2 nodes of round 2","restarts":1}
{"time":"2026-11-19T15:36:58.055951Z","ev":"told.closed","run":"j1","to":"all","round":2,"nodes":2}
{"time":"2026-11-19T15:36:58.059168Z","ev":"node.left","run":"j1","node":"host_13225_932979886","cause":"finished","standing":"finished","round":2,"rank":1}
{"time":"2026-11-19T15:36:58.059286Z","ev":"node.disconnected","run":"j1","node":"","connection":1}
{"time":"2026-11-19T15:36:58.060335Z","ev":"node.left","run":"j1","node":"host_13224_1028694213","cause":"finished","standing":"finished","round":2,"rank":0}
{"time":"2026-11-19T15:36:58.060363Z","ev":"node.disconnected","run":"j1","node":"","connection":2}
{"time":"2026-11-19T15:36:58.060363Z","ev":"job.state","run":"j2","epoch":1795102615393934}
{"time":"2026-11-19T15:36:58.074888Z","ev":"node.announced","run":"j2","node":"host_13765_104656625","address":"127.0.0.1:48833","connection":17,"incarnation":1795102618073883,"min":1,"max":3}
{"time":"2026-11-19T15:36:58.074963Z","ev":"node.announced","run":"j2","node":"host_13766_234331308","address":"127.0.0.1:49341","connection":18,"incarnation":1795102618074269,"min":1,"max":3}
{"time":"2026-11-19T15:37:00.102960Z","ev":"journal.begun","version":1,"muster":"0.2.0"}
{"time":"2026-11-19T15:37:00.102960Z","ev":"job.state","run":"j2","epoch":1795102620076732}
{"time":"2026-11-19T15:37:00.102959Z","ev":"node.announced","run":"j2","node":"host_13766_234331308","address":"127.0.0.1:49341","connection":1,"incarnation":1795102618074269,"min":1,"max":3}
{"time":"2026-11-19T15:37:00.123980Z","ev":"node.announced","run":"j2","node":"host_13765_104656625","address":"127.0.0.1:48833","connection":2,"incarnation":1795102618073883,"min":1,"max":3}
{"time":"2026-11-19T15:37:02.103330Z","ev":"job.complete","run":"j2","round":1,"nodes":2,"why":"last call"}
{"time":"2026-11-19T15:37:02.103330Z","ev":"told.sealed","run":"j2","to":"all","round":1,"nodes":2}
{"time":"2026-11-19T15:37:03.078527Z","ev":"node.disconnected","run":"j2","node":"host_13766_234331308","connection":1}
{"time":"2026-11-19T15:37:04.084945Z","ev":"node.lost","run":"j2","node":"host_13766_234331308","cause":"disconnected","standing":"member","round":1,"rank":1}
{"time":"2026-11-19T15:37:04.084945Z","ev":"job.reopened","run":"j2","round":1,"next":2,"why":"lost","node":"host_13766_234331308"}
{"time":"2026-11-19T15:37:04.084945Z","ev":"told.lost","run":"j2","to":"all","round":1,"nodes":2,"lost":1,"total":1}
{"time":"2026-11-19T15:37:04.084945Z","ev":"told.reopened","run":"j2","to":"all","round":1,"nodes":2,"next":2}
{"time":"2026-11-19T15:37:04.085221Z","ev":"node.announced","run":"j2","node":"host_13765_104656625","address":"127.0.0.1:53561","connection":2,"incarnation":1795102618073883,"min":1,"max":3,"knows":1,"holds":"no"}
{"time":"2026-11-19T15:37:04.085221Z","ev":"job.complete","run":"j2","round":2,"nodes":1,"why":"everybody back"}
{"time":"2026-11-19T15:37:04.085221Z","ev":"told.sealed","run":"j2","to":"all","round":2,"nodes":1}
{"time":"2026-11-19T15:37:06.086370Z","ev":"job.shut","run":"j2","by":"muster close, host","reason":"done"}
{"time":"2026-11-19T15:37:06.086370Z","ev":"job.closed","run":"j2","round":2,"by":"muster close, host","reason":"done","restarts":0}
{"time":"2026-11-19T15:37:06.086370Z","ev":"told.closed","run":"j2","to":"all","round":2,"nodes":1}
{"time":"2026-11-19T15:37:06.086844Z","ev":"node.left","run":"j2","node":"host_13765_104656625","cause":"left","standing":"member","round":2,"rank":0}
{"time":"2026-11-19T15:37:06.086854Z","ev":"node.disconnected","run":"j2","node":"","connection":2}
{"run_id":"j2","backend":"muster","exists":true,"phase":"closed","epoch":1795102620076732,"round":2,"round_next":3,"world_size":1,"complete":false,"closed":true,"closed_by":"muster close, host","reason":"done","outcome":"asked","cause":null,"nodes_min":0,"nodes_max":0,"needed":0,"last_call_ms":null,"finished":0,"restarts":0,"restarts_total":0,"restarts_max":null,"restarts_left":null,"restarts_window_ms":0,"dialect":null,"status":null,"participants":[],"waiting":[],"spares":[],"gone":[{"node":"host_13765_104656625","addr":"127.0.0.1:53561","standing":"gone","rank":0,"heartbeat_age_ms":0,"late":false,"clock_skew_ms":0,"pid":null,"local_id":null,"labels":{},"cause":"left"}],"truncated":false}
