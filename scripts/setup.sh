# shellcheck shell=bash
# Makes .venv with this package and one of its extras. Sourced by the scripts beside it.
# Needs a Python from 3.10 to 3.13 and its venv module, and nothing else.

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 3
}

check_system() {
  case "$(uname -s)" in
    Linux | Darwin) ;;
    *)
      fail "distbench runs on Linux and macOS, and this is $(uname -s)." \
        "Use WSL or a container."
      ;;
  esac
}

# Prints the first Python of a fitting version. A shim that only says which versions
# are installed does not count, so each one is asked.
find_python() {
  local name names=(python3.11 python3.12 python3.10 python3.13 python3)
  [[ -z ${DISTBENCH_PYTHON:-} ]] || names=("$DISTBENCH_PYTHON")
  for name in "${names[@]}"; do
    if "$name" -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
      2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  fail "no Python from 3.10 to 3.13 with the module venv was found." \
    "Install one (Debian: apt install python3-venv) or name it in DISTBENCH_PYTHON."
}

# Prints the checkout whose distbench is installed in .venv.
find_installed() {
  local python
  python=$(pwd)/.venv/bin/python
  (cd / && "$python" -c 'import distbench, pathlib
print(pathlib.Path(distbench.__file__).parents[1])' 2>/dev/null) || true
}

# A link to another checkout's .venv: to install there would have that one run this
# one's files.
check_link() {
  local there
  [[ -L .venv ]] || return 0
  there=$(find_installed)
  [[ -z $there || $there == "$(pwd -P)" ]] ||
    fail ".venv is a link to $(readlink .venv), where the distbench of $there is" \
      "installed. Remove the link, and this makes an environment of its own."
}

# Removes a .venv without pip, if it was made here.
clear_own() {
  [[ -e .venv || -L .venv ]] || return 0
  if [[ -L .venv ]] || ! compgen -G ".venv/distbench-*" >/dev/null; then
    fail ".venv has no pip, and these scripts did not make it. Install pip there, or" \
      "remove .venv, and this makes an environment of its own."
  fi
  rm -rf .venv
}

# prepare_environment EXTRA: installs only if pyproject.toml, the extra or the place
# has changed since the last time that it succeeded.
prepare_environment() {
  local extra=$1 stamp=.venv/distbench-$1.stamp want python
  check_system
  # Who calls a script from elsewhere may mean files of there.
  [[ ${OLDPWD:-.} -ef . ]] || echo "in $PWD: relative paths begin there" >&2
  check_link
  want=$(pwd && cksum <pyproject.toml)
  if [[ -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$want" ]]; then
    return
  fi
  if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    python=$(find_python)
    clear_own
    echo "making .venv with $python"
    mkdir .venv
    : >.venv/distbench-made
    "$python" -m venv .venv
  fi
  echo "installing distbench[$extra] into .venv (TensorFlow is large: minutes at first)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --editable ".[$extra]"
  printf '%s\n' "$want" >"$stamp"
}

# Installs Slurm's daemons, where that needs nobody's password. Tests that lack an engine
# say so.
prepare_slurm() {
  if ! command -v slurmd >/dev/null && command -v apt-get >/dev/null && [[ $EUID == 0 ]]; then
    echo "installing slurm-wlm and munge"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes \
      --no-install-recommends slurm-wlm munge; } >/dev/null ||
      echo "slurm-wlm could not be installed"
  fi
}

prepare_ray() {
  if ! .venv/bin/python -c 'import ray' 2>/dev/null; then
    echo "installing distbench[ray] into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
      --editable ".[ray]" || echo "ray could not be installed"
  fi
}

# Installs what opens an HTML report, where that needs nobody's password. Tests that
# have no browser say what they lack.
prepare_browser() {
  if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [[ $EUID == 0 ]]; then
    echo "installing chromium"
    { apt-get update && apt-get install --yes --no-install-recommends \
      chromium chromium-driver; } >/dev/null || echo "chromium could not be installed"
  fi
}
