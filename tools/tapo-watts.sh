#!/bin/sh
# Prints the watts that a TP-Link Tapo P110/P115 plug measures, for `idle_watts = { meter = "tools/tapo-watts.sh" }`.
#
# untried: no plug was at hand. By python-kasa (pip install python-kasa), whose command line speaks the plug's encrypted protocol: the Rust crate
# for it pulls in 277 others. PLUG, TAPO_USER and TAPO_PASSWORD come from the environment: put no password into an experiment's file.
set -eu
: "${PLUG:?the plug's address}" "${TAPO_USER:?the account}" "${TAPO_PASSWORD:?its password}"
kasa --host "$PLUG" --username "$TAPO_USER" --password "$TAPO_PASSWORD" --json energy |
    sed -n 's/.*"\(power_mw\|current_power\)": *\([0-9]*\).*/\1 \2/p' | head -n 1 |
    awk '$1 == "power_mw" { print $2 / 1000; ok = 1 } $1 == "current_power" { print $2; ok = 1 } END { exit !ok }'
