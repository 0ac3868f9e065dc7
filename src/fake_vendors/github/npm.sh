#!/bin/sh
# Stand-in for npm and its registry: every package contains the scripted agent as its program. Like the real one, it
# refuses a version that does not exist, and leaves a program unfinished if scripts are ignored.
here=$(dirname "$0")
echo "$*" >>"$here/npm.log"
prefix='' package='' scripts=true
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=$2; shift ;;
    --ignore-scripts) scripts=false ;;
    -* | install) ;;
    *) package=$1 ;;
  esac
  shift
done
name=${package%@*} version=${package##*@}
case $version in
  '' | *[!0-9.]*)
    echo "npm error code ETARGET: No matching version found for $package" >&2
    exit 1
    ;;
esac
case $name in
  @anthropic-ai/claude-code) program=claude ;;
  @openai/codex) program=codex ;;
  @google/gemini-cli) program=gemini ;;
  *)
    echo "npm error code E404: Not Found - GET https://registry.npmjs.org/$name" >&2
    exit 1
    ;;
esac
modules=$prefix/node_modules
mkdir -p "$modules/.bin" "$modules/$name/bin"
cp "$here/scripted-agent" "$modules/$name/lib.sh"
printf '#!/bin/sh\necho "native binary not installed" >&2\nexit 1\n' >"$modules/$name/bin/$program"
printf 'lib.sh bin/%s\n' "$program" >"$modules/$name/install.cjs"
chmod 755 "$modules/$name/bin/$program" "$modules/$name/lib.sh"
ln -s "../$name/bin/$program" "$modules/.bin/$program"
[ "$scripts" = false ] || exec "$here/node" "$modules/$name/install.cjs"
