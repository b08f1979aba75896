#!/bin/sh
# Works while this instance leads. Starts counting when it sends the request, so it never works too long.
url=${TENURE_URL:-http://127.0.0.1:4040}
while :; do
  # -f: any status except 200 is a failure. min_remaining: enough time for the work that follows.
  if term=$(curl -fsS -m 1 -o /dev/null -w '%header{tenure-term}' "$url/leader?min_remaining=2s"); then
    echo "leader in term $term: working"   # at most 2 s of work; pass $term to the resource
  else
    echo "standby"
  fi 2>/dev/null
  sleep 1
done
