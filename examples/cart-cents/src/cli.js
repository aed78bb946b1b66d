// @ts-check
// Reads {"lines": […], "discountPercent": 10} from standard input and prints the total.
import { text } from 'node:stream/consumers';
import { total } from './cart.js';

try {
  const { lines, discountPercent } = JSON.parse(await text(process.stdin));
  console.log(total(lines, discountPercent));
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 2;
}
