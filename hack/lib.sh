# Sourced by the scripts here: runs xtask from anywhere, with one build folder for all of them.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# A folder that cargo already fills is reused; the cache's outlives clones of the repository.
if [ -z "${CARGO_TARGET_DIR:-}" ]; then
    if [ -d "$root/target" ]; then
        export CARGO_TARGET_DIR="$root/target"
    else
        export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/stoa/target"
        # Nobody edits and builds again in there: what that would save is disk spent for nothing.
        export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
    fi
fi

xtask() {
    # A first build takes a while, and cargo says so; after that it has nothing to say.
    local quiet=--quiet
    [ -x "$CARGO_TARGET_DIR/debug/xtask" ] || quiet=
    cargo build $quiet --manifest-path "$root/Cargo.toml" --package xtask >&2
    STOA_REPOSITORY="$root" "$CARGO_TARGET_DIR/debug/xtask" "$@"
}

# Builds stoa-apiserver, function-runner and xtask with a profile of Cargo's, at once, and says how far that is.
build_all() {
    local manifest=(--manifest-path "$root/Cargo.toml")
    local packages=(--package stoa-apiserver --package function-runner --package xtask)
    local build=(cargo build "${manifest[@]}" --profile "$1" "${packages[@]}")
    echo "==> Building Stoa with the profile $1" >&2
    if [ -t 2 ]; then
        # On a terminal Cargo shows a bar: "Building [====>    ] 312/480".
        "${build[@]}" >&2
        return
    fi
    local total
    total=$(cargo tree "${manifest[@]}" "${packages[@]}" --edges normal,build --prefix none --format '{p}' |
        sed 's/ (.*//' | sort -u | grep -c .)
    "${build[@]}" --verbose 2>&1 | awk -v total="$total" '
        / (Compiling|Fresh) / { count++; if (count % 20 == 0 || count == total) print "building " count " of " total; fflush(); next }
        / (Running|Dirty|Downloading|Downloaded|Locking|Updating) / { next }
        { print; fflush() }' >&2
}
