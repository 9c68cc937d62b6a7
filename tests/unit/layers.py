"""Who imports whom: what each module or package takes of distbench, and may take.

The longest name here that a module begins with says which it belongs to; its own
modules it may always import. `launch` and `worker` meet in files and messages only;
`compare` and `diagnose` see no processes.
"""

from __future__ import annotations

_TAKES = {
    "errors": "",
    "addresses": "",
    "escape": "",
    "cluster.numbers": "",
    "cluster.kind": "cluster.numbers",
    "cluster.kinds": "cluster.kind",
    "cluster": "cluster.kind cluster.kinds cluster.numbers errors",
    "digits": "errors",
    "dyadic": "",
    "xla": "spelling",
    "locks": "",
    "input_file": "errors",
    "split": "errors spelling",
    "partitioner": "cluster errors spelling",
    "fault": "cluster errors spelling",
    "spelling": "",
    "typed": "errors",
    "limits": "errors spelling",
    "scenario": "cluster errors fault limits partitioner spelling split",
    "pickling": "errors locks",
    "target": "errors machine pickling",
    "target.carried": "",
    # Runs the user's code, so nobody but a task may.
    "target.loading": "errors pickling target target.carried",
    "codes": "errors",
    "gpus": "cluster errors",
    "machine": "cluster errors gpus",
    "trace": "addresses errors",
    "trace.folder": "errors trace trace.files",
    "trace.naming": "trace",
    "trace.files": "errors trace",
    "fed": "trace",
    "evidence": "examples fed scenario trace",
    "examples": "",
    "flight": "evidence trace",
    "late": "",
    "details": "",
    "verdict": "details errors escape",
    "verdict.document": "details errors verdict",
    "verdict.handed": "verdict",
    "stop": "cluster errors spelling trace",
    "history": "errors scenario spelling split verdict",
    "history.pattern": "",
    "history.suite": "verdict",
    "history.quarantine": "codes errors history.pattern input_file verdict",
    "options": (
        "cluster codes engine_names errors fault limits partitioner scenario spelling "
        "split typed verdict"
    ),
    "launch": "cluster errors escape gpus locks machine",
    "agent": "cluster errors gpus launch",
    "engine_names": "",
    "engines": "agent cluster engine_names errors launch machine",
    "worker.state": "errors partitioner trace",
    "worker.process": "cluster errors gpus launch pickling worker.state",
    "worker.taps": "dyadic launch stop trace worker.process worker.state",
    "worker.families": "errors scenario trace worker.process worker.state worker.taps",
    "worker.recording": (
        "errors trace trace.files trace.folder worker.families worker.process "
        "worker.state worker.taps"
    ),
    "worker.stepping": (
        "cluster errors fault scenario split trace worker.families worker.process "
        "worker.state worker.taps"
    ),
    "worker.workloads": "digits dyadic errors",
    "worker.subjects": (
        "cluster dyadic errors scenario split trace worker.families worker.process "
        "worker.state worker.stepping worker.taps worker.workloads"
    ),
    "worker.one_device": (
        "errors evidence examples fault fed late scenario trace trace.naming "
        "worker.families worker.process worker.state worker.stepping worker.subjects "
        "worker.taps"
    ),
    "worker.in_flight": (
        "scenario trace worker.one_device worker.state worker.stepping worker.taps"
    ),
    "worker": (
        "cluster errors evidence fed late launch pickling reported_steps scenario stop "
        "target target.loading trace trace.files trace.naming worker.families "
        "worker.in_flight worker.one_device worker.process worker.state "
        "worker.stepping worker.subjects worker.taps"
    ),
    "compare.arrays": "evidence trace",
    "compare.nature": "compare.arrays dyadic evidence trace",
    "compare.state": "compare.arrays compare.nature evidence trace",
    "compare.pairs": (
        "compare.arrays compare.nature compare.state details dyadic evidence trace"
    ),
    "compare.inside": "compare.arrays evidence fed trace",
    "compare.recorded": "compare.arrays errors trace trace.naming",
    "compare": (
        "compare.arrays compare.pairs compare.state details evidence flight trace"
    ),
    "diagnose.names": "",
    "diagnose.seeds": "evidence trace",
    "diagnose.judgement": "details verdict",
    "diagnose.clues": (
        "compare compare.arrays compare.inside diagnose.names evidence fed trace"
    ),
    "diagnose.hypotheses": (
        "compare.arrays compare.inside compare.nature compare.state diagnose.clues "
        "diagnose.names diagnose.seeds fed trace"
    ),
    "diagnose.causes": (
        "codes compare compare.arrays compare.nature compare.state diagnose.clues "
        "diagnose.hypotheses diagnose.names evidence split trace verdict"
    ),
    "diagnose.stages": (
        "codes compare compare.arrays compare.nature compare.state diagnose.causes "
        "diagnose.clues diagnose.hypotheses diagnose.names evidence trace verdict"
    ),
    "diagnose.readings": (
        "codes compare compare.arrays compare.inside compare.nature compare.pairs "
        "compare.state details diagnose.causes diagnose.clues diagnose.hypotheses "
        "diagnose.judgement diagnose.names diagnose.seeds diagnose.stages evidence fed "
        "spelling trace verdict"
    ),
    "diagnose.remarks": (
        "codes compare.arrays compare.inside details diagnose.names diagnose.readings "
        "diagnose.seeds evidence examples trace verdict"
    ),
    "diagnose": (
        "compare compare.arrays compare.inside compare.nature compare.state details "
        "diagnose.causes diagnose.judgement diagnose.names diagnose.readings "
        "diagnose.remarks diagnose.stages errors evidence flight spelling trace verdict"
    ),
    "report": (
        "cluster codes compare.arrays compare.recorded details errors escape history "
        "options scenario trace verdict verdict.document"
    ),
    "repro": (
        "cluster codes digits dyadic errors gpus limits partitioner scenario split "
        "target verdict"
    ),
    "environments": "errors launch trace trace.folder verdict verdict.document",
    "shrink": "cluster errors limits options scenario verdict",
    "preloading": "gpus launch options xla",
    "observe": (
        "cluster errors evidence examples fault fed flight late launch preloading "
        "scenario stop target trace trace.files"
    ),
    "summaries": "checking.launches details launch observe options trace verdict",
    "checking": "",
    "checking.detailing": "details evidence flight trace",
    "checking.confirm": (
        "compare.arrays diagnose diagnose.readings diagnose.stages evidence trace "
        "verdict"
    ),
    "checking.origin": (
        "addresses compare.arrays evidence launch scenario target trace verdict"
    ),
    "checking.kept": "errors escape evidence scenario trace.files",
    "checking.uneven": "split",
    "checking.stuck": "checking.uneven cluster codes launch trace trace.files verdict",
    "checking.attempt": "errors observe",
    "checking.controls": (
        "checking.attempt checking.origin cluster compare.state diagnose evidence "
        "locks observe scenario target"
    ),
    "checking.plan": "cluster errors fault machine options scenario spelling xla",
    "checking.runs": "checking.plan evidence trace verdict",
    "checking.expecting": "checking.runs verdict",
    "checking.further": (
        "checking.kept checking.plan checking.runs diagnose.readings errors evidence "
        "fault late observe options scenario spelling verdict"
    ),
    "checking.again": (
        "checking.plan diagnose.judgement evidence observe scenario verdict"
    ),
    "checking.uncompiled": "checking.again checking.runs scenario verdict",
    "checking.drawing": (
        "checking.again checking.runs diagnose.judgement diagnose.readings "
        "diagnose.seeds evidence scenario trace verdict"
    ),
    "checking.drift": (
        "checking.again checking.runs cluster compare.arrays compare.recorded "
        "compare.state diagnose.judgement evidence scenario trace verdict"
    ),
    "checking.failing": (
        "checking.controls checking.origin checking.plan checking.runs checking.stuck "
        "cluster errors evidence launch observe scenario split trace verdict xla"
    ),
    "checking.locating": (
        "checking.attempt checking.plan compare.inside compare.nature diagnose "
        "diagnose.clues diagnose.judgement diagnose.readings evidence observe scenario "
        "target trace verdict"
    ),
    "checking.units": (
        "checking.attempt checking.plan compare.arrays details diagnose "
        "diagnose.judgement diagnose.names evidence observe target trace verdict"
    ),
    "checking.races": "checking.origin verdict",
    "checking.flights": (
        "checking.attempt checking.controls checking.origin checking.plan "
        "checking.races diagnose evidence flight observe target verdict"
    ),
    "checking.lanes": "launch",
    "checking.launches": "errors launch observe options spelling",
    "checking.telling": "options scenario verdict",
    "checking.own_keras": "errors observe options spelling",
    "checking.debugging": (
        "checking.launches checking.own_keras checking.plan errors fault launch "
        "machine observe options stop target xla"
    ),
    "checking.judging": (
        "checking.again checking.attempt checking.confirm checking.controls "
        "checking.detailing checking.drawing checking.drift checking.failing "
        "checking.flights checking.kept checking.locating checking.origin "
        "checking.plan checking.runs checking.uncompiled checking.units details "
        "diagnose errors evidence flight observe options target verdict"
    ),
    "checking.running": (
        "checking.expecting checking.further checking.judging checking.kept "
        "checking.plan checking.runs errors late machine observe options target verdict"
    ),
    "checking.checker": (
        "checking.kept checking.lanes checking.plan checking.running checking.runs "
        "checking.telling errors late launch machine observe options target verdict xla"
    ),
    "checking.check": (
        "checking.checker checking.launches checking.own_keras checking.plan "
        "checking.telling engines launch options target verdict"
    ),
    "api": "checking.check errors fault launch options spelling target typed verdict",
    # Runs in the user's own process, which has TensorFlow.
    "recording": "errors machine typed worker.recording",
    "reported_steps": "",
    "call": "cluster engines errors fault launch limits observe pickling typed",
    "doctor": "errors gpus launch machine preloading",
    # Catalogues of what users write: read without TensorFlow, run in tasks alone.
    "samples": "",
    "faults": "cluster codes errors samples split trace unusual",
    "unusual": "cluster samples",
    "selftest": "checking.check cluster errors faults options target unusual verdict",
    "cli": (
        "checking.check checking.debugging checking.kept cluster codes "
        "compare.recorded doctor engine_names environments errors escape faults "
        "history history.pattern history.quarantine input_file launch machine options "
        "preloading report repro scenario selftest shrink spelling stop summaries "
        "target trace trace.folder unusual verdict verdict.document"
    ),
    "bench": "api call fault limits verdict verdict.handed",
    "collected": (
        "errors history.suite options report summaries verdict verdict.document"
    ),
    "pytest_plugin": (
        "bench collected engine_names errors options report spelling verdict "
        "verdict.document"
    ),
    "__init__": "api call fault launch recording reported_steps verdict",
    "__main__": "cli",
}
ALLOWED = {layer: set(names.split()) for layer, names in _TAKES.items()}
