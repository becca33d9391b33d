import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.testng.IAnnotationTransformer;
import org.testng.ITestListener;
import org.testng.ITestNGListener;
import org.testng.ITestResult;
import org.testng.TestNG;
import org.testng.annotations.ITestAnnotation;
import org.testng.xml.XmlClass;
import org.testng.xml.XmlInclude;
import org.testng.xml.XmlSuite;
import org.testng.xml.XmlTest;

/**
 * Runs tests of one class: SuiteRunner CLASS METHOD...
 *
 * Prints "#passed METHOD", "#failed METHOD" or "#skipped METHOD" for each test, and the cause before it. A method with
 * several sets of arguments has a line for each.
 */
public class SuiteRunner {
    public static void main(String[] arguments) throws Exception {
        XmlSuite suite = new XmlSuite();
        suite.setName("door");
        XmlTest test = new XmlTest(suite);
        XmlClass tested = new XmlClass(arguments[0]);
        List<XmlInclude> included = new ArrayList<>();
        for (int place = 1; place < arguments.length; place++) {
            included.add(new XmlInclude(arguments[place]));
        }
        tested.setIncludedMethods(included);
        test.setXmlClasses(new ArrayList<>(List.of(tested)));
        TestNG testng = new TestNG(false);
        testng.setXmlSuites(List.of(suite));
        testng.addListener((ITestNGListener) new Times());
        testng.addListener((ITestNGListener) new Results());
        testng.run();
        // Threads of clients that a test has not closed would keep the process.
        Runtime.getRuntime().halt(0);
    }

    /** Each test without a limit of its own gets one. */
    public static class Times implements IAnnotationTransformer {
        @Override
        public void transform(ITestAnnotation test, Class type, Constructor constructor, Method method) {
            if (test.getTimeOut() == 0) {
                test.setTimeOut(Long.getLong("test.ms"));
            }
        }
    }

    /** Prints as soon as a test has ended: the next one may end the process. */
    public static class Results implements ITestListener {
        @Override
        public void onTestSuccess(ITestResult result) {
            print("passed", result);
        }

        @Override
        public void onTestFailure(ITestResult result) {
            print("failed", result);
        }

        @Override
        public void onTestSkipped(ITestResult result) {
            print("skipped", result);
        }

        private static void print(String word, ITestResult result) {
            if (result.getThrowable() != null) {
                result.getThrowable().printStackTrace(System.out);
            }
            System.out.printf("#%s %s%n", word, result.getMethod().getMethodName());
            System.out.flush();
        }
    }
}
