"""`anybatch COMMAND --help`, without what the command itself imports."""

from anybatch.cli import flags, help_page, parsing
from anybatch.dial.other_trainers import TRAINERS

PLAN_FROM = f"""usage: anybatch plan --from TRAINER KEY=VALUE … --num-envs N [--json]
       anybatch plan --from TRAINER FILE --num-envs N [--json]

Show another trainer's configuration at another number of environments, in its
own settings.

  TRAINER     {", ".join(TRAINERS)}
  KEY=VALUE   settings by the trainer's own names, at their tuned batch
  FILE        the same as a JSON or YAML file; KEY=VALUE words after it override
              it
  --num-envs  environments of the planned run
  --json      print JSON, for programs
"""
ADVISE = """usage: anybatch advise RUN

Say what a run's metrics suggest about its settings.

  RUN  a run folder, or a folder of runs (the newest is used)
"""
REPORT = """usage: anybatch report STUDY | TUNING | RUN... [--out FOLDER]
       anybatch report STUDY | TUNING --record FILE

Write a page about a study: its verdicts with their intervals, figures, scores,
plans and commands; about a tuning: its check, what mattered, its numbers and
trials; or about runs: overlaid curves, plans, advice and commands. Runs that
differ only in their seeds are one line with a range.

  STUDY          the folder of a study, or a file that --record wrote
  TUNING         the folder of a tuning, or a file that --record wrote
  RUN            a run folder, or a folder of runs, of which the newest is used
  --out FOLDER   where index.html, figures/ and data/ are written
                 [STUDY/report or RUN/report; report for several runs; for a
                 file NAME.jsonl.gz, NAME-report beside it]
  --record FILE  instead of a page, write all that is needed for it into this
                 one file, ending in .jsonl.gz, to keep or to share
"""
PLOT = """usage: anybatch plot RUN... [--metric NAME] --out FILE

Draw one metric of several runs over env steps.

  RUN            a run folder, or a folder of runs, of which the newest is used
  --metric NAME  a metric named in metrics.jsonl, such as losses/approx_kl
                 [charts/episodic_return]
  --out FILE     the picture file to write, ending in .png, .svg or .pdf
"""
DIAL = """usage: anybatch dial [STUDY...] [--preset FILE...] [--out FILE]

Write a page with a slider for the batch of a preset; every number follows. It
needs no network and no other file.

  STUDY          studies, as folders or as files of `report --record`, whose
                 curves are shown at the batch nearest to the chosen one
  --preset FILE  your own presets, ending in .toml, listed before the built-in
                 ones
  --out FILE     the page to write [dial.html]
"""
PRESETS = """usage: anybatch presets [NAME | WORD] [--json]

List the named configurations and the sources of their numbers.

  NAME    print this preset, or a file ending in .toml, as one complete file
          with the origin of each number
  WORD    list the presets whose name contains it, such as atari
  --json  print JSON, for programs
"""
DOCTOR = """usage: anybatch doctor [--json]

Check this machine: engines, libraries, speed.
"""
TEXTS = {
    "advise": ADVISE,
    "report": REPORT,
    "plot": PLOT,
    "dial": DIAL,
    "presets": PRESETS,
    "doctor": DOCTOR,
}
ALONE = {kind.command: kind for kind in (flags.PullFlags, flags.TuneFlags, flags.StudyFlags)}
"""Commands without the settings of a run."""
OF_RUNS: dict[str, type[flags.RunFlags]] = {
    kind.command: kind
    for kind in (
        flags.ResumeFlags,
        flags.EvaluateFlags,
        flags.WatchFlags,
        flags.ExportFlags,
        flags.PushFlags,
    )
}


def show(name: str, words: list[str]) -> None:
    """Print the help of a command, with the values of the preset or run that the words name."""
    if name in TEXTS:
        print(TEXTS[name], end="")
    elif name == "plan" and any(word.partition("=")[0] == "--from" for word in words):
        print(PLAN_FROM, end="")
    elif name in ALONE:
        help_page.show(ALONE[name]())
    elif name in OF_RUNS:
        parsing.with_run(OF_RUNS[name], words)
    elif name == "train":
        parsing.with_preset(flags.TrainFlags, words)
    else:
        parsing.with_preset(flags.PlanFlags, words)
