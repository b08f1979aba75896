// Works while this instance leads. Starts counting when it sends the request, so it never works too long.
const url = (process.env.TENURE_URL ?? "http://127.0.0.1:4040") + "/leader";

for (;;) {
  const sent = performance.now();
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(1000) });
    if (!answer.ok) throw new Error("passive");
    const until = sent + Number(answer.headers.get("tenure-valid-for-ms"));
    const left = (until - performance.now()) / 1000;
    console.log(`leader in term ${answer.headers.get("tenure-term")} for ${left.toFixed(1)} s`);
  } catch {
    console.log("standby"); // 503 means passive; so does no answer
  }
  await new Promise((resolve) => setTimeout(resolve, 1000));
}
