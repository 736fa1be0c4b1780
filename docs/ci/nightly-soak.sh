#!/usr/bin/env bash
# A soak every night from cron, without any CI system. In `crontab -e`:
#
#   MAILTO=you@example.org
#   17 1 * * *  /path/to/nightly-soak.sh
#   @reboot     /path/to/nightly-soak.sh --resume
#
# It prints nothing when all seeds are valid, and cron mails whatever it prints. It never runs twice
# at once, goes on after a reboot or a kill with what it had begun, rotates its logs, and compares
# every night with the one before. Its exit code is that of the soak: 0 valid, 1 invalid, 2 unknown,
# 130 interrupted, 255 crash; and 75 when last night's is still at work.
#
# Settings are read from SOAK_HOME/soak.conf, which is sourced; these are the defaults:
set -euo pipefail

SOAK_HOME=${SOAK_HOME:-$HOME/harness-soak}   # store, logs, reports and state
HARNESS=harness                              # the program, e.g. /opt/venv/bin/harness
SEEDS=500                                    # how many seeds a night
# shellcheck disable=SC2054 # the comma is part of a value
CASE=(--env sim --nemesis partition-leader,kill-leader --time-limit 60)
JOBS=$(nproc)
VERSION_COMMAND=(echo unversioned)           # prints what is tested, for the label
NOTIFY=()                                    # called with a subject; the text is on its stdin
KEEP_NIGHTS=7                                # nights whose runs, logs and reports are kept

{ # Read to its last line before any of it runs: an update of this file harms no night at work.

mkdir -p "$SOAK_HOME"/{logs,reports,store}
cd "$SOAK_HOME"
# shellcheck disable=SC1091
if [ -f soak.conf ]; then . ./soak.conf; fi

exec 9> lock
if ! flock --nonblock 9; then
    [ "${1:-}" = --resume ] && exit 0
    echo "last night's soak is still at work (it holds $SOAK_HOME/lock)" >&2
    exit 75
fi

# --- what to do: what was begun, or a new night -------------------------------------------------

if [ ! -s current ]; then
    [ "${1:-}" = --resume ] && exit 0
    first=$(cat next-seed 2>/dev/null || echo 1)
    version=$("${VERSION_COMMAND[@]}" | tr -c 'A-Za-z0-9._\n' '-' | head -n 1 | cut -c 1-30)
    echo "$(date +%Y%m%d-%H%M%S)-$version $first $((first + SEEDS - 1))" > current.part
    mv current.part current
fi
read -r label first last < current
log=logs/$label.log

# --- soak and report ----------------------------------------------------------------------------

code=0
rm -f "reports/$label.json"                  # an interrupted one left it
"$HARNESS" soak "${CASE[@]}" --seeds "$first..$last" --jobs "$JOBS" --label "$label" --store store \
    --keep all --junit "reports/$label.xml" --summary-json "reports/$label.json" --quiet \
    >> "$log" 2>&1 9>&- || code=$?
if [ "$code" -eq 130 ] || grep -qs '"interrupted":true' "reports/$label.json"; then
    exit "$code"                             # the next start goes on
fi
if [ ! -s "reports/$label.json" ]; then      # it could not even begin, or its disk is full
    echo "soak $label did not come to its end (exit code $code); the next start tries again"
    tail -n 20 "$log"
    exit "$code"
fi

before=$(tail -n 1 labels 2>/dev/null || true)
compare=()
if [ -n "$before" ]; then compare=(--baseline "$before" --label "$label"); fi
report=0
"$HARNESS" report store "${compare[@]}" --output "reports/$label" > "reports/$label.txt" 2>> "$log" \
    9>&- || report=$?
ln -sfn "$label" reports/latest
echo $((last + 1)) > next-seed
echo "$label" >> labels
rm current

# --- tell ---------------------------------------------------------------------------------------

worse=$(grep '^  worse: ' "reports/$label.txt" || true)
if [ "$code" -ne 0 ] || [ "$report" -gt 2 ] || [ -n "$worse" ]; then
    text=$(
        echo "soak $label, seeds $first..$last: exit code $code (report: $report)"
        [ -z "$worse" ] || echo "$worse"
        echo "page: $SOAK_HOME/reports/$label/report.html   log: $SOAK_HOME/$log"
        echo
        tail -n 60 "$log"
    )
    if [ ${#NOTIFY[@]} -gt 0 ]; then
        "${NOTIFY[@]}" "soak $label: exit code $code" <<< "$text"
    else
        echo "$text"
    fi
fi

# --- forget what is old -------------------------------------------------------------------------

head -n "-$KEEP_NIGHTS" labels | while read -r old; do
    find store -mindepth 2 -maxdepth 2 -type d -name "$old-*" -exec rm -rf {} +
    rm -rf "reports/$old" "reports/$old".{txt,xml,json} "logs/$old.log"
done
find store -path '*/.*' -type f -mtime "+$KEEP_NIGHTS" -delete # journals, and results of old runs
tail -n "$KEEP_NIGHTS" labels > labels.part && mv labels.part labels
exit "$code"
}
