#!/usr/bin/env bash
# Prepares a checkout for building: .venv with the development tools, torch and ray, and nasm for JPEG and AV1.
#
#   scripts/setup.sh            installs what is missing; a second run takes a fraction of a second
#   scripts/setup.sh --notice   only repeats the warning if JPEG and AV1 had to be built without SIMD
#
# Needs cargo, a C compiler and Python 3.10 or newer; works with or without root. Everything goes into
# .venv and .tools, except for one system package (nasm) that it installs when run as root on Debian or Ubuntu.
# torch, ray and Azurite are optional: without them, their tests are skipped and say why. KINOGRAPH_NO_TORCH=1,
# KINOGRAPH_NO_RAY=1 and KINOGRAPH_NO_AZURITE=1 skip them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# .venv must be created by a Python that outlives it, even if .venv is the active environment.
PATH=${PATH//"$PWD/.venv/bin:"/}

readonly VENV=.venv TOOLS=.tools
readonly STAMP=$VENV/.setup-stamp NO_TORCH=$VENV/no-torch NO_NASM=$TOOLS/no-nasm
readonly REQUIREMENTS=scripts/requirements-dev.txt
readonly NO_RAY=$VENV/no-ray RAY='ray>=2.40,<3'
readonly AZURITE=$TOOLS/azurite NO_AZURITE=$TOOLS/no-azurite
readonly TORCH='torch>=2.12,<3' TORCH_CPU=https://download.pytorch.org/whl/cpu
say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$1" >&2
    printf 'hint: %s\n' "$2" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

notice() {
    [[ -e $NO_NASM ]] || return 0
    cat >&2 <<'TEXT'

  ############################################################################
  #  JPEG AND AV1 ARE BUILT WITHOUT SIMD: encoding and decoding take several #
  #  times as long. The pixels are the same; only the speed suffers.         #
  #                                                                          #
  #  The assembler `nasm` was not found and could not be installed.          #
  #  To fix it:    apt-get install nasm    (or dnf, brew, pacman: any nasm)  #
  #  and then:     make build              (finds it and builds again)       #
  ############################################################################

TEXT
}

# Prints the first Python that is new enough.
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    die "no Python 3.10 or newer found" "install it, or set its path: PYTHON=/path/to/python3 make setup"
}

check_tools() {
    cargo --version >/dev/null || die "cargo cannot be run" "install Rust from https://rustup.rs, then open a new shell"
    have "${CC:-cc}" || die "no C compiler (${CC:-cc}) on PATH" "install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC"
}

make_venv() {
    local python=$1
    say "creating $VENV with $python"
    rm -rf "$VENV"
    "$python" -m venv "$VENV" >"$TOOLS/venv.log" 2>&1 && return
    # Debian's Python has no ensurepip until python3-venv is installed; another pip can be used instead.
    rm -rf "$VENV"
    if "$python" -m venv --without-pip "$VENV" >>"$TOOLS/venv.log" 2>&1 &&
        "$python" -m pip --python "$VENV/bin/python" install --quiet pip >>"$TOOLS/venv.log" 2>&1; then
        return
    fi
    rm -rf "$VENV"
    if is_root_on_debian && apt_install python3-venv && "$python" -m venv "$VENV" >>"$TOOLS/venv.log" 2>&1; then
        return
    fi
    cat "$TOOLS/venv.log" >&2
    die "$python cannot create a virtual environment" "Debian and Ubuntu: apt-get install python3-venv; or use another Python: PYTHON=/path/to/python3 make setup"
}

# What .venv depends on: if any of these changes, it is created anew or updated.
fingerprint() {
    local python=$1
    { cat "$REQUIREMENTS"; pwd; "$python" -VV; } | cksum
}

setup_python() {
    local python wanted
    python=$(find_python)
    wanted=$(fingerprint "$python")
    if [[ -x $VENV/bin/python && -e $STAMP && $(cat "$STAMP") == "$wanted" ]]; then
        return
    fi
    make_venv "$python"
    say "installing the development tools from PyPI into $VENV"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$REQUIREMENTS" ||
        die "the development tools could not be installed" "see the lines above; pip needs access to PyPI or a mirror"
    printf '%s\n' "$wanted" >"$STAMP"
}

# torch for the tests: the one in .venv if there is one. A failure is not repeated on every build.
setup_torch() {
    if [[ -n $(compgen -G "$VENV/lib/python3*/site-packages/torch") ]]; then
        rm -f "$NO_TORCH"
    elif [[ ${KINOGRAPH_NO_TORCH:-} == 1 ]]; then
        no_torch "KINOGRAPH_NO_TORCH=1 was set"
    elif [[ ! -e $NO_TORCH ]] || grep -q KINOGRAPH_NO_TORCH "$NO_TORCH"; then
        rm -f "$NO_TORCH"
        install_torch
    fi
}

# On Linux, PyPI has only the build with CUDA: a download of 3 GB and 5 GB on disk. The CPU build has 0.2 GB and is tried
# first; a machine that cannot reach its index, or a platform it does not have, uses pip's own indexes.
install_torch() {
    local log=$TOOLS/torch.log pip=("$VENV/bin/python" -m pip install --no-cache-dir --no-compile --disable-pip-version-check)
    say "installing torch"
    "${pip[@]}" --timeout 10 --retries 1 --index-url "$TORCH_CPU" "$TORCH" >"$log" 2>&1 && return
    say "the CPU build of torch is not available; installing the one of pip's indexes, on Linux with CUDA (3 GB)"
    "${pip[@]}" "$TORCH" >"$log" 2>&1 && return
    # Half a torch would fail tests; without torch they are skipped.
    "$VENV/bin/python" -m pip uninstall --quiet --yes torch >>"$log" 2>&1 || true
    no_torch "pip failed: $(grep '^ERROR' "$log" | tail -n 1)"
}

no_torch() {
    printf '%s; to try again: rm %s && make setup\n' "$1" "$NO_TORCH" >"$NO_TORCH"
    say "no torch; the tests that need it are skipped: $1"
}

# ray for the tests of packs on a cluster: a download of 70 MB, which takes 0.3 GB. No wheel for a platform is no failure.
setup_ray() {
    if [[ -n $(compgen -G "$VENV/lib/python3*/site-packages/ray") ]]; then
        rm -f "$NO_RAY"
    elif [[ ${KINOGRAPH_NO_RAY:-} == 1 ]]; then
        no_ray "KINOGRAPH_NO_RAY=1 was set"
    elif [[ ! -e $NO_RAY ]] || grep -q KINOGRAPH_NO_RAY "$NO_RAY"; then
        rm -f "$NO_RAY"
        say "installing ray"
        "$VENV/bin/python" -m pip install --no-cache-dir --disable-pip-version-check "$RAY" >"$TOOLS/ray.log" 2>&1 ||
            no_ray "pip failed: $(grep '^ERROR' "$TOOLS/ray.log" | tail -n 1)"
    fi
}

no_ray() {
    printf '%s; to try again: rm %s && make setup\n' "$1" "$NO_RAY" >"$NO_RAY"
    say "no ray; the tests that need it are skipped: $1"
}

# Azurite, the emulator of Azure's storage, for the tests of az:// URLs: half a minute from npm, and 0.2 GB. It runs with node,
# which is not installed here.
setup_azurite() {
    if [[ -d $AZURITE/node_modules/azurite ]]; then
        rm -f "$NO_AZURITE"
    elif [[ ${KINOGRAPH_NO_AZURITE:-} == 1 ]]; then
        no_azurite "KINOGRAPH_NO_AZURITE=1 was set"
    elif ! have node || ! have npm; then
        no_azurite "node and npm are not installed"
    elif [[ ! -e $NO_AZURITE ]] || ! grep -q 'npm failed' "$NO_AZURITE"; then
        say "installing azurite"
        if timeout 300 npm install --prefix "$AZURITE.new" --no-audit --no-fund --ignore-scripts --fetch-retries 1 \
            'azurite@^3.35' >"$TOOLS/azurite.log" 2>&1; then
            rm -rf "$AZURITE" "$NO_AZURITE"
            mv "$AZURITE.new" "$AZURITE"
        else
            rm -rf "$AZURITE.new"
            no_azurite "npm failed: see $TOOLS/azurite.log"
        fi
    fi
}

no_azurite() {
    printf '%s; to try again: rm %s && make setup\n' "$1" "$NO_AZURITE" >"$NO_AZURITE"
    say "no azurite; the tests that need it are skipped: $1"
}

is_root_on_debian() { [[ $(id -u) == 0 ]] && have apt-get; }

apt_install() {
    # dpkg refuses to work when PATH, as a non-login shell may have it, lacks the sbin folders.
    local -x DEBIAN_FRONTEND=noninteractive PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    say "installing $1 with apt-get"
    apt-get install -y --no-install-recommends "$1" >"$TOOLS/apt.log" 2>&1 && return
    # A fresh container has no package lists.
    apt-get update >>"$TOOLS/apt.log" 2>&1 &&
        apt-get install -y --no-install-recommends "$1" >>"$TOOLS/apt.log" 2>&1
}

# Without root: download Debian's package and unpack it here.
nasm_from_package() {
    have apt-get && have dpkg-deb || return 1
    local lists=$PWD/$TOOLS/apt
    local private=(-o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache")
    say "fetching Debian's nasm package into $TOOLS"
    mkdir -p "$TOOLS/package" "$lists/lists/partial" "$lists/cache/archives/partial"
    (
        cd "$TOOLS/package" && rm -f nasm_*.deb &&
            { apt-get download nasm || { apt-get "${private[@]}" update && apt-get "${private[@]}" download nasm; }; } &&
            dpkg-deb -x nasm_*.deb .
    ) >"$TOOLS/apt.log" 2>&1 || return 1
    rm -rf "$lists"
    install_nasm "$TOOLS/package/usr/bin/nasm"
}

install_nasm() {
    "$1" -v >/dev/null 2>&1 || return 1
    mkdir -p "$TOOLS/bin"
    cp "$1" "$TOOLS/bin/nasm"
}

# The x86 kernels of libjpeg-turbo and rav1d are nasm source; on other CPUs they are C or the compiler's.
setup_nasm() {
    case $(uname -m) in x86_64 | amd64 | i?86) ;; *) return ;; esac
    if have nasm || "$TOOLS/bin/nasm" -v >/dev/null 2>&1; then
        rm -f "$NO_NASM"
        return
    fi
    # A failed search is not repeated on every build, only after a change to this script.
    local script
    script=$(cksum <scripts/setup.sh)
    if [[ -e $NO_NASM && $(cat "$NO_NASM") == "$script" ]]; then
        return
    fi
    if { is_root_on_debian && apt_install nasm && have nasm; } || nasm_from_package; then
        rm -f "$NO_NASM"
        return
    fi
    printf '%s\n' "$script" >"$NO_NASM"
}

if [[ ${1:-} == --notice ]]; then
    notice
    exit
fi
check_tools
mkdir -p "$TOOLS"
setup_python
setup_torch
setup_ray
setup_azurite
setup_nasm
notice
