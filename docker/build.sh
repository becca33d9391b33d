#!/usr/bin/env bash
# Builds Oncelog's images with docker, podman or buildah; on a machine that can pull no base image, from Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'USAGE'
docker/build.sh [option…] [image…]

Images
  services     every service and the command line (default)
  pipeline     the same with PySpark and a Java: a large download
  zookeeper    stand-ins for the official images, made from Debian packages; built by default as well
  redis        when the base is `bootstrap`
  all          all of them

Options, each with the variable that says the same
  --base IMAGE         BASE          what the images stand on: an image with Python 3.11 or later and its venv module
                                     (default python:3.11-slim-bookworm, and where that cannot be pulled, bootstrap), or
                                     `bootstrap`: Debian 12 with its Python, made here with mmdebstrap
  --java IMAGE         JAVA          whose Java the pipeline gets (default eclipse-temurin:17-jre; with bootstrap, Debian's)
  --builder NAME       BUILDER       docker, podman or buildah (default: the first that answers)
  --repository NAME    REPOSITORY    what names begin with, for example registry.example/team/ (default: nothing)
  --tag TAG            TAG           default: the version in pyproject.toml
  --archive DIRECTORY  ARCHIVE       also write each image there as a docker archive, for a cluster without a registry,
                                     and values.yaml, which names the images to the chart (helm install --values)
  --certificates FILE  CERTIFICATES  authorities to trust while downloading, PEM (default: $PIP_CERT, $SSL_CERT_FILE, or
                                     those of this machine)
  --pip-config FILE    PIP_CONFIG    a pip configuration for the build, for example with a mirror
  --mirror URL         MIRROR        a Debian mirror for bootstrap (default: that of mmdebstrap)
  --fresh                            forget what is cached: newest packages of Debian and of the base image
  --help

http_proxy, https_proxy and no_proxy (or in capitals) are passed on. buildah and podman run without root when the user has
subordinate ids; BUILDAH_ISOLATION is theirs, and chroot by default, which needs no privileges.
USAGE
}

fail() {
    printf 'docker/build.sh: %s\n' "$*" >&2
    exit 1
}

say() { printf '==> %s\n' "$*"; }

OFFICIAL=python:3.11-slim-bookworm
CACHE=.cache/images
PULL_TIMEOUT_S=120
EXCLUDED=(/usr/share/doc/\* /usr/share/info/\* /usr/share/lintian/\* /usr/share/locale/\* /usr/share/man/\* /usr/lib/\*/gconv/\*)
SUITE=bookworm

fresh=
images=()
while (($#)); do
    case $1 in
    --base | --java | --builder | --repository | --tag | --archive | --certificates | --pip-config | --mirror)
        [[ ${2:-} ]] || fail "$1 needs a value; see --help"
        name=${1#--} && name=${name//-/_}
        declare "${name^^}=$2"
        shift 2
        ;;
    --fresh) fresh=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    services | pipeline | zookeeper | redis) images+=("$1") && shift ;;
    all) images+=(services pipeline zookeeper redis) && shift ;;
    *) fail "unknown image '$1': images are services, pipeline, zookeeper, redis and all; see --help" ;;
    esac
done
BASE=${BASE:-} BUILDER=${BUILDER:-} REPOSITORY=${REPOSITORY:-} ARCHIVE=${ARCHIVE:-} MIRROR=${MIRROR:-} PIP_CONFIG=${PIP_CONFIG:-}
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
TAG=${TAG:-$VERSION}
REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[[ $TAG =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] || fail "'$TAG' is not a valid tag: use at most 128 letters, digits, _ . -"

certificates() {
    local file
    for file in "${CERTIFICATES:-}" "${PIP_CERT:-}" "${SSL_CERT_FILE:-}"; do
        [[ $file ]] || continue
        [[ -s $file ]] || fail "the certificates $file do not exist or are empty: --certificates must name a PEM file"
        echo "$file" && return
    done
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        if [[ -s $file ]]; then echo "$file" && return; fi
    done
}

# --- builders: what the three have in common is docker's command line, but for these ---

answers() {
    case $1 in
    docker) docker info >/dev/null 2>&1 ;;
    podman | buildah) "$1" info >/dev/null 2>&1 ;;
    esac
}

choose_builder() {
    local candidate found=()
    if [[ $BUILDER ]]; then
        [[ $BUILDER =~ ^(docker|podman|buildah)$ ]] || fail "the builder is docker, podman or buildah, not '$BUILDER'"
        command -v "$BUILDER" >/dev/null || fail "$BUILDER is not installed, or not on PATH"
        answers "$BUILDER" || fail "$BUILDER does not answer: run \`$BUILDER info\`"
        return
    fi
    for candidate in docker podman buildah; do
        command -v "$candidate" >/dev/null || continue
        if answers "$candidate"; then BUILDER=$candidate && return; fi
        found+=("$candidate")
    done
    ((${#found[@]})) && fail "${found[*]} is installed and does not answer: run \`${found[0]} info\`"
    fail "no builder found: install docker, podman or buildah (on Debian: apt-get install --no-install-recommends buildah)"
}

# build TAG DOCKERFILE CONTEXT [argument…]
build() {
    local tag=$1 file=$2 context=$3 proxy
    shift 3
    local arguments=(-t "$tag" -f "$file" "$@")
    [[ $fresh ]] && arguments+=(--no-cache)
    for proxy in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [[ ${!proxy:-} ]] && arguments+=(--build-arg "$proxy")
    done
    local command=(docker build)
    case $BUILDER in
    podman) command=(podman build --layers --format docker) ;;
    buildah) command=(buildah bud --layers --format docker) ;;
    esac
    mkdir -p "$CACHE"
    DOCKER_BUILDKIT=1 "${command[@]}" "${arguments[@]}" "$context" >"$CACHE/build.log" 2>&1 && return
    tail -n 40 "$CACHE/build.log" >&2
    fail "$BUILDER could not build $tag; the end of $CACHE/build.log is above"
}

image_id() {
    case $BUILDER in
    buildah) buildah inspect --type image --format '{{.FromImageID}}' "$1" 2>/dev/null ;;
    *) "$BUILDER" image inspect --format '{{.Id}}' "$1" 2>/dev/null ;;
    esac
}

image_size() {
    case $BUILDER in
    buildah) buildah images --format '{{.Size}}' "$1" ;;
    *) "$BUILDER" image inspect --format '{{.Size}}' "$1" | awk '{printf "%.0f MB\n", $1 / 1e6}' ;;
    esac | sed -n 1p
}

# archive IMAGE FILE: written only when the image is another one than the last time
archive() {
    local id
    id=$(image_id "$1")
    if [[ -s $2 && -s $2.id && $(<"$2.id") == "$id" ]]; then return; fi
    rm -f "$2" "$2.id" "$2.part"
    case $BUILDER in
    docker) docker save -o "$2.part" "$1" ;;
    # Not `podman save`: it would write the name as localhost/…, which no pod asks for.
    podman | buildah) "$BUILDER" push --quiet "$1" "docker-archive:$2.part:$1" ;;
    esac || fail "$BUILDER could not write $2"
    mv "$2.part" "$2"
    echo "$id" >"$2.id"
}

# --- bases ---

# bootstrap TARGET IMAGE PACKAGE…: an image of Debian packages, made anew when docker/bootstrap or the packages' names change
bootstrap() {
    local target=$1 image=$2 key cached root options=() path
    shift 2
    key=$({ cat docker/bootstrap/* && printf '%s\n' "$SUITE" "${EXCLUDED[@]}" "$@"; } | sha256sum | cut -c 1-12)
    cached=oncelog-bootstrap:$target-$key
    if [[ $fresh ]] || ! image_id "$cached" >/dev/null; then
        command -v mmdebstrap >/dev/null || fail "a base of Debian packages needs mmdebstrap (apt-get install mmdebstrap); " \
            "or name an image that this machine has or can pull: --base IMAGE"
        say "$target: a root file system of Debian packages"
        root=$CACHE/$target
        rm -rf "$root" && mkdir -p "$root"
        for path in "${EXCLUDED[@]}"; do options+=("--dpkgopt=path-exclude=$path"); done
        # A Java wants to link its manual pages, though there are none.
        options+=('--essential-hook=mkdir -p "$1/usr/share/man/man1"')
        # Debian's zookeeper depends on a Java with a desktop; its scripts and the jars, which it shares, are enough.
        [[ $target == zookeeper ]] && options+=('--customize-hook=directory=$(mktemp -d) && cd "$directory" &&
            APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -qq download zookeeper 2>/dev/null && dpkg-deb -x zookeeper_*.deb "$1" && rm -r "$directory"')
        if ! mmdebstrap --variant=essential --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr "${options[@]}" \
            --include="$(IFS=, && echo "usr-is-merged,$*")" "$SUITE" "$root/root.tar" ${MIRROR:+"$MIRROR"} \
            >"$CACHE/bootstrap.log" 2>&1; then
            tail -n 20 "$CACHE/bootstrap.log" >&2
            fail "mmdebstrap could not make the root file system of $target; the end of $CACHE/bootstrap.log is above"
        fi
        cp docker/bootstrap/* "$root/"
        build "$cached" "$root/Dockerfile" "$root" --target "$target"
        rm -rf "$root"
    fi
    "$BUILDER" tag "$cached" "$image"
}

choose_base() {
    if [[ ! $BASE ]]; then
        if [[ ! $fresh ]] && image_id "$OFFICIAL" >/dev/null; then
            BASE=$OFFICIAL
        elif timeout "$PULL_TIMEOUT_S" "$BUILDER" pull "$OFFICIAL" >/dev/null 2>&1; then
            BASE=$OFFICIAL
        else
            say "$OFFICIAL cannot be pulled here: bootstrapping a base from Debian packages"
            BASE=bootstrap
        fi
    fi
    if [[ $BASE == bootstrap ]]; then
        bootstrapped=yes
        BASE=oncelog-base:$TAG
        bootstrap base "$BASE" libstdc++6 python3 python3-venv
    elif ! image_id "$BASE" >/dev/null; then
        timeout "$PULL_TIMEOUT_S" "$BUILDER" pull "$BASE" >/dev/null ||
            fail "the base $BASE is not on this machine and cannot be pulled; --base bootstrap makes one from Debian packages"
    fi
}

# --- images ---

wants() { [[ " ${images[*]} " == *" $1 "* ]]; }

finish() {
    local name=$1 image=$2 file=
    if [[ $ARCHIVE ]]; then
        mkdir -p "$ARCHIVE"
        file=$ARCHIVE/$name.tar
        archive "$image" "$file"
    fi
    case $name in
    oncelog) values+=("image: {repository: ${image%:*}, tag: \"$TAG\"}") ;;
    oncelog-pipeline | oncelog-zookeeper | oncelog-redis) values+=("${name#oncelog-}: {image: {repository: ${image%:*}, tag: \"$TAG\"}}") ;;
    esac
    summary+=("$(printf '%-42s %10s  %s' "$image" "$(image_size "$image")" "$file")")
}

build_python_image() {
    local image=$1 file=$2 secrets=() trusted
    shift 2
    trusted=$(certificates)
    [[ $trusted ]] && secrets+=(--secret "id=certificates,src=$trusted")
    if [[ $PIP_CONFIG ]]; then
        [[ -s $PIP_CONFIG ]] || fail "the pip configuration $PIP_CONFIG does not exist or is empty"
        secrets+=(--secret "id=pip,src=$PIP_CONFIG")
    fi
    build "$image" "$file" . --build-arg "BASE=$BASE" --build-arg "VERSION=$VERSION" --build-arg "REVISION=$REVISION" \
        "${secrets[@]}" "$@"
}

started=$SECONDS
bootstrapped=
java=${JAVA:-}
summary=()
values=()
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
choose_builder
say "building with $BUILDER"
((${#images[@]})) || images=(services)
if wants services || wants pipeline; then choose_base; fi
[[ $bootstrapped ]] && images+=(zookeeper redis)

if wants services || wants pipeline; then
    say "services, on $BASE"
    build_python_image "${REPOSITORY}oncelog:$TAG" docker/Dockerfile
    finish oncelog "${REPOSITORY}oncelog:$TAG"
fi
if wants zookeeper; then
    bootstrap zookeeper "${REPOSITORY}oncelog-zookeeper:$TAG" openjdk-17-jre-headless libzookeeper-java
    finish oncelog-zookeeper "${REPOSITORY}oncelog-zookeeper:$TAG"
fi
if wants redis; then
    bootstrap redis "${REPOSITORY}oncelog-redis:$TAG" redis-server
    finish oncelog-redis "${REPOSITORY}oncelog-redis:$TAG"
fi
if wants pipeline; then
    # Where the base was bootstrapped, no image with a Java can be pulled either; the stand-in for ZooKeeper has one.
    [[ $bootstrapped ]] && java=${java:-${REPOSITORY}oncelog-zookeeper:$TAG}
    say "pipeline: PySpark, and the Java of ${java:-the default image}"
    build_python_image "${REPOSITORY}oncelog-pipeline:$TAG" docker/pipeline.Dockerfile \
        --build-arg "SERVICES=${REPOSITORY}oncelog:$TAG" ${java:+--build-arg "JAVA=$java"}
    finish oncelog-pipeline "${REPOSITORY}oncelog-pipeline:$TAG"
fi
if [[ $ARCHIVE ]] && ((${#values[@]})); then printf '%s\n' "${values[@]}" >"$ARCHIVE/values.yaml"; fi
say "done in $((SECONDS - started)) s"
printf '%s\n' "${summary[@]}"
