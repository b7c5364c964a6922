#!/bin/sh
# Is the first line of a commit message short enough, and without a period at its end? Git calls it with the message's file.
set -eu
subject=$(sed -n 1p "${1:?usage: commit-subject.sh FILE}")
if [ "${#subject}" -gt 72 ]; then
	echo "commit subject: ${#subject} characters, at most 72 are allowed" >&2
	exit 1
fi
case $subject in
*.) echo "commit subject: ends with a period" >&2; exit 1 ;;
esac
