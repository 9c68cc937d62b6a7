"""What a task does: it waits for the jobs that the bench gives it."""

from __future__ import annotations

from distbench.launch.channel import TaskChannel
from distbench.launch.task import TaskContext, serve
from distbench.worker.jobs.call import CallJobs
from distbench.worker.jobs.debug import DebugJob
from distbench.worker.jobs.flight import FlightJobs
from distbench.worker.jobs.reference import ReferenceJobs
from distbench.worker.jobs.summaries import summarise
from distbench.worker.jobs.task import Task
from distbench.worker.jobs.training import TrainingJobs
from distbench.worker.process.autograph import leave_modules_alone
from distbench.worker.process.failures import classify_failure
from distbench.worker.process.joining import wait_before_joining


def run_task(channel: TaskChannel, context: TaskContext) -> None:
    """Entry of every task that the bench starts."""
    leave_modules_alone()
    wait_before_joining()
    task = Task(channel, context)
    reference = ReferenceJobs(task)
    training = TrainingJobs(task)
    flight = FlightJobs(task, training)
    calls = CallJobs(task)
    serve(
        channel,
        {
            "open": task.open,
            "describe": task.describe,
            "read": training.read,
            "reference": task.place(reference.make_reference),
            "probe": task.place(reference.probe),
            "uncut": task.place(reference.run_uncut),
            "prepare": training.prepare,
            "train": training.train,
            "save": training.save,
            "debug": DebugJob(task, training).debug,
            "replay": task.place(reference.replay),
            "plan_rounds": flight.plan_rounds,
            "fly": flight.fly,
            "follow_rounds": flight.follow_rounds,
            "stand_by": calls.stand_by,
            "call": calls.call,
            "summarise": summarise,
        },
        classify=classify_failure,
    )
