#!/bin/sh
# Makes a folder in which Paddle's aarch64 wheel runs on an x86-64 Debian, under qemu-user:
#
#   apt-get install g++-aarch64-linux-gnu qemu-user
#   sh tests/virtual/make_aarch64.sh /tmp/aarch64
#   AUTOAMP_TEST_AARCH64=/tmp/aarch64 pytest tests/virtual/test_aarch64.py -m slow
#
# PYTHON names the version of Debian's python3 (12: 3.11, 13: 3.13), PADDLE that of the wheel.
set -eu
folder=$1
python=${PYTHON:-3.11}
paddle=${PADDLE:-3.2.2}
mkdir -p "$folder/lists/partial" "$folder/debs" "$folder/wheels" "$folder/site" "$folder/root"
folder=$(cd "$folder" && pwd)

options="-oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists=$folder/lists"
apt-get $options -qq update
(
    cd "$folder/debs"
    apt-get $options -qq download "python$python-minimal" "libpython$python-minimal" \
        "libpython$python-stdlib" libc6 libgcc-s1 libstdc++6 libgomp1 libgfortran5 zlib1g \
        libexpat1 libffi8 libbz2-1.0 liblzma5 libuuid1 libcrypt1
    # A library may have been renamed between Debian's releases; one of each pair is there.
    for name in libssl3 libssl3t64 libsqlite3-0 libncursesw6 libtinfo6; do
        apt-get $options -qq download "$name" 2>/dev/null || true
    done
)
for deb in "$folder"/debs/*.deb; do dpkg -x "$deb" "$folder/root"; done

platforms=
for tag in manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28; do
    platforms="$platforms --platform ${tag}_aarch64"
done
python3 -m pip download --quiet --no-deps --only-binary=:all: $platforms \
    --python-version "$python" -d "$folder/wheels" "paddlepaddle==$paddle" "numpy<2.4" \
    protobuf pillow safetensors httpx httpcore h11 anyio sniffio idna certifi typing_extensions \
    decorator astor networkx opt_einsum "setuptools<80" packaging
for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/site"; done

libraries="$folder/root/usr/lib/aarch64-linux-gnu:$folder/root/lib/aarch64-linux-gnu"
cat > "$folder/python" <<END
#!/bin/sh
# OpenBLAS would take settings of this machine's processor for its own.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export PYTHONHOME="$folder/root/usr" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export PYTHONPATH="$folder/site\${PYTHONPATH:+:\$PYTHONPATH}"
exec qemu-aarch64 -L "$folder/root" \\
    -E LD_LIBRARY_PATH="$libraries:$folder/site/paddle/libs" \\
    "$folder/root/usr/bin/python$python" "\$@"
END
cat > "$folder/g++" <<'END'
#!/bin/sh
# Paddle's libraries need others that lie beside them and in the emulated root.
exec aarch64-linux-gnu-g++ "$@" -Wl,--allow-shlib-undefined
END
chmod +x "$folder/python" "$folder/g++"
"$folder/python" -c "import platform; print('python', platform.python_version(), platform.machine())"
