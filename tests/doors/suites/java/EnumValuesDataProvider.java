package org.apache.pulsar.tests;

import java.lang.reflect.Method;
import java.util.Arrays;
import org.testng.annotations.DataProvider;

/** Stands for Pulsar's class of this name, which is in no package: a test runs for each value of its argument. */
public class EnumValuesDataProvider {
    @DataProvider
    public static Object[][] values(Method method) {
        Object[] constants = method.getParameterTypes()[0].getEnumConstants();
        return Arrays.stream(constants).map(each -> new Object[] {each}).toArray(Object[][]::new);
    }
}
