#!/bin/sh
# Creates a CA for the nats-servers of a Muster cluster, and certificates signed by it, with openssl:
#
#   deploy/nats-certificates.sh DIR ADDRESS...
#
# Writes DIR/ca.crt and DIR/ca.key, for each ADDRESS (IP address or host name of a nats-server) DIR/ADDRESS.crt and .key, and
# DIR/manager.crt and .key, which managers present. Existing files are kept: run it again to add a server. DAYS: validity of the
# certificates in days (default 3650).
set -eu
umask 077
dir=${1:?"usage: $0 DIR ADDRESS..."}
shift
days=${DAYS:-3650}
mkdir -p "$dir"

# Prints openssl's output only on failure.
quietly() {
  output=$("$@" 2>&1) || {
    printf '%s\n' "$output" >&2
    exit 1
  }
}

[ -e "$dir/ca.key" ] || quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "$days" \
  -subj "/CN=nats of a muster cluster" -keyout "$dir/ca.key" -out "$dir/ca.crt"

# NAME EXTENSIONS
sign() {
  [ -e "$dir/$1.crt" ] && return
  printf '%s\n' "$2" >"$dir/$1.ext"
  quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$dir/$1.key" -out "$dir/$1.csr"
  quietly openssl x509 -req -in "$dir/$1.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial -days "$days" \
    -extfile "$dir/$1.ext" -out "$dir/$1.crt"
  rm "$dir/$1.ext" "$dir/$1.csr"
}

for address; do
  case $address in
  *:*) kind=IP ;;
  *[!0-9.]*) kind=DNS ;;
  *) kind=IP ;;
  esac
  # A server is also a client when it dials the others.
  sign "$address" "subjectAltName=$kind:$address
extendedKeyUsage=serverAuth,clientAuth"
done
sign manager "extendedKeyUsage=clientAuth"
