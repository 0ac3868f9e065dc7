#!/usr/bin/env bash
# Makes the root file system of a runner image from the programs of this machine. From the environment: TAR is the archive
# to write, ROOT the folder to make it in, which may hold further files, and PROGRAM agent-implement. The arguments are
# the names of programs to add.
set -euo pipefail
agent_implement=${PROGRAM:?}
mkdir -p "$ROOT" && cd "$ROOT"
mkdir -p tmp proc sys dev etc home/agent scripts usr/local/bin usr/bin usr/lib lib64 lib
printf 'root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/bash\n' >etc/passwd
# An agent that plays the scripts in /scripts.
cat >usr/local/bin/claude <<'END'
#!/bin/sh
[ -d /tmp/scripts ] || cp -R /scripts /tmp/scripts
exec agent-implement scripted-agent --scripts /tmp/scripts "$@"
END
strip -o usr/local/bin/agent-implement "$agent_implement" || cp "$agent_implement" usr/local/bin/agent-implement
chmod 755 usr/local/bin/*
ln -s usr/bin bin
for program in "$@"; do cp -L "$(command -v "$program")" usr/bin/; done
core=$(git --exec-path)
mkdir -p ".$core" && cp -a "$core/." ".$core/"
cp -aL /usr/share/git-core usr/share/ 2>/dev/null || true
libraries() { ldd "$@" 2>/dev/null | grep -o '/[^ ]*' | grep -v ':$' | sort -u; }
for library in $(libraries usr/local/bin/agent-implement usr/bin/* "$core"/git-remote-http "$core"/git); do
    mkdir -p ".$(dirname "$library")" && cp -L "$library" ".$library"
done
chmod 1777 tmp && chown -R 1000:1000 home/agent
tar -cf "$TAR" .
