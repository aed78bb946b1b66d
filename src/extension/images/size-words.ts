/** Bytes for people, in binary units: `1.5 MiB`, `4.0 GiB`. */
export function sizeWords(bytes: number): string {
  const mebibytes = bytes / 1024 ** 2;
  return mebibytes < 1024 ? `${mebibytes.toFixed(1)} MiB` : `${(mebibytes / 1024).toFixed(1)} GiB`;
}
