#!/bin/bash
# Submits a federation to Slurm: a job for each site, and one for the server.
#   fedcompass deploy init federation --address node01:9092 --site north --site south
#   examples/slurm/submit.sh federation
# The server's job runs on the node that the sites' certificates name, here node01.
set -euo pipefail
federation=$(realpath "${1:?usage: submit.sh FEDERATION}")
here=$(dirname "$(realpath "$0")")
node=$(sed -n 's/^address = "\(.*\):[0-9]*".*/\1/p' "$federation/deployment.toml")
jobs=()
for site in "$federation"/sites/*/; do
    name=$(basename "$site")
    jobs+=("$(sbatch --parsable --job-name="site-$name" "$here/site.sbatch" "$site")")
done
sbatch --parsable --nodelist="$node" "$here/server.sbatch" "$federation" "${jobs[@]}"
