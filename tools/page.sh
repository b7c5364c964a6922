#!/bin/sh
# Builds the live page of the service into crates/vsteer-serve/page/dist, which the next build of vsteer-serve embeds.
#
# Its packages come from npm, at the versions in package-lock.json. Vite needs a newer Node.js than some distributions have.
#
# usage: tools/page.sh [--if-possible | --test]
#   --if-possible    without a Node.js that is new enough, say so and go on
#   --test           test the page that was built, in Chromium, with the service in target/debug; without Node.js say so,
#                    and fail in CI
set -eu
cd "$(dirname "$0")/../crates/vsteer-serve/page"

new_enough() {
	command -v npm >/dev/null 2>&1 && node -e '
		const [major, minor] = process.versions.node.split(".").map(Number);
		process.exit(major > 22 || major === 22 && minor >= 12 || major === 20 && minor >= 19 ? 0 : 1)' 2>/dev/null
}

if ! new_enough; then
	found=$(node --version 2>/dev/null || echo none)
	if [ "${1:-}" = --if-possible ]; then
		echo "note: vsteer-serve gets no live page: Node.js 20.19 or newer is needed, found $found"
		exit 0
	fi
	if [ "${1:-}" = --test ] && [ "${CI:-}" != true ]; then
		echo "note: the live page was not tested: Node.js 20.19 or newer is needed, found $found"
		exit 0
	fi
	echo "error: cannot build the live page: Node.js 20.19 or newer is needed, found $found" >&2
	echo "  help: install a newer Node.js from nodejs.org; everything else builds without Node.js" >&2
	exit 4
fi
if [ "${1:-}" = --test ]; then
	exec npm test
fi
built() { npm ci --no-audit --no-fund --ignore-scripts && npm run build; }
if ! built; then
	# Without npm's registry everything else can still be built.
	[ "${1:-}" = --if-possible ] || exit 1
	echo "note: vsteer-serve gets no live page: npm could not build it" >&2
fi
